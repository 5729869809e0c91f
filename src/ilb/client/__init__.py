"""A client of `ilb serve` that always has an answer: it repeats safely, falls back by itself, and delivers later.

    with Client("http://127.0.0.1:8000", outbox="outbox.jsonl") as client:
        decision = client.decide("anna", {"pain": 1.4, "mobility": -0.3}, key="visit-1")
        client.learn(decision, reward=1.7)

Only the standard library is used, and neither JAX nor NumPy is loaded.
"""

from ilb.client.asynchronous import AsyncClient as AsyncClient
from ilb.client.client import Client as Client
from ilb.client.told import Decision as Decision
from ilb.client.told import Told as Told
from ilb.client.wire import RefusedError as RefusedError
from ilb.client.wire import UnreachableError as UnreachableError
