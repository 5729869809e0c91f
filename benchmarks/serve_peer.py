"""What one writes in an afternoon: MABWiser behind FastAPI, each request committed alone, as durably as `ilb serve`.

One bandit for all people, no repeats, no fallback, no log to replay; it is here for its speed. Run by benchmarks.serve
in the environment of benchmarks/serve-requirements.txt: uvicorn serve_peer:app
"""

import json
import os
import sqlite3
import threading
import uuid
from typing import Any

import numpy as np
from fastapi import FastAPI
from mabwiser.mab import MAB, LearningPolicy

app, lock = FastAPI(), threading.Lock()
bandit = MAB(list(range(20)), LearningPolicy.LinTS(), seed=0)
bandit.fit(list(range(20)), [0.0] * 20, np.zeros((20, 5)))
store = sqlite3.connect(os.environ["PEER_STORE"], check_same_thread=False, isolation_level=None)
store.executescript(
    "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; CREATE TABLE events (decision, body);"
    "CREATE INDEX events_by_decision ON events (decision)"
)


@app.post("/v1/people/{person}/decisions", status_code=201)
def decide(person: str, body: dict[str, Any]) -> dict[str, Any]:
    context = list(body["context"].values())
    name = uuid.uuid4().hex
    with lock:
        action = int(bandit.predict([context]))
        written = json.dumps({"person": person, "context": context, "action": action})
        store.execute("INSERT INTO events VALUES (?, ?)", (name, written))
    return {"decision_id": name, "action": action}


@app.post("/v1/decisions/{name}/outcome", status_code=201)
def learn(name: str, body: dict[str, Any]) -> dict[str, Any]:
    with lock:
        row = store.execute("SELECT body FROM events WHERE decision = ?", (name,)).fetchone()
        decided = json.loads(row[0])
        bandit.partial_fit([decided["action"]], [body["reward"]], [decided["context"]])
        store.execute("INSERT INTO events VALUES (?, ?)", (name, json.dumps(body)))
    return {"decision_id": name}
