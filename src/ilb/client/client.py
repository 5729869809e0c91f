"""Client: asks for decisions, tells outcomes, and goes on by itself when no server answers."""

from __future__ import annotations

import math
import secrets
import threading
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ilb.client.outbox import Letter, Outbox
from ilb.client.told import Decision, Told
from ilb.client.wire import RefusedError, UnreachableError, Wire
from ilb.errors import DecisionError, IlbWarning
from ilb.serve.events import written
from ilb.serve.fallback import UNIFORM, Drawn, Scalar, draw

IN_PASSING = 20
"""Letters of other people that a call delivers after its own work is done."""

NOBODY = ""
"""Whom letters are about whose decision was given by its id alone."""

NOT_THE_LETTERS_FAULT = {401, 403}


class Client:
    """Talks to `ilb serve`. Calls may come from any thread; each outbox belongs to one client.

    Parameters
    ----------
    address
        Of the server, such as `http://127.0.0.1:8000`.
    outbox
        The file in which what could not be delivered waits.
    key
        A key of the role `decide`, where the server asks for one.
    actions, fallback
        What to choose from and what is declared as fallback, for the case that the server was never reached; once it
        was, the client has that from the server.
    timeout, patience
        Seconds to wait for one answer, and for all attempts of one call together.

    """

    def __init__(
        self,
        address: str,
        *,
        outbox: str | Path,
        key: str | None = None,
        actions: Sequence[Scalar] | None = None,
        fallback: Scalar | None = None,
        timeout: float = 2.0,
        patience: float = 5.0,
    ) -> None:
        self._wire = Wire(address, key, timeout=timeout, patience=patience)
        self._outbox = Outbox(Path(outbox))
        self._given: dict[str, Any] | None = None
        if actions is not None:
            self._given = {"actions": list(actions), "fallback": fallback, "model": None}
        self._delivering = threading.Lock()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def waiting(self) -> int:
        """How much could not be delivered yet."""
        return len(self._outbox.waiting)

    def decide(
        self,
        person: str,
        context: Mapping[str, Any],
        *,
        key: str | None = None,
        allowed: Sequence[Scalar] | None = None,
        forbidden: Sequence[Scalar] | None = None,
        mode: str = "live",
        taken: Scalar | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> Decision:
        """Ask for a decision; without a server, draw the declared fallback and deliver that later.

        Name the visit by `key`, and the same visit gets the same decision, however often it is asked for.
        """
        given = {
            "allowed": allowed,
            "forbidden": forbidden,
            "mode": None if mode == "live" else mode,
            "taken": taken,
            "tags": tags,
        }
        body = _plain({"context": context, **{name: value for name, value in given.items() if value is not None}})
        key = key or secrets.token_hex(12)
        path = _path_of(person, "decisions")
        try:
            self._know_fallback()
            self._deliver_for({person, NOBODY})
            answer = self._wire.send("POST", path, body, key)
        except UnreachableError as error:
            return self._decide_here(person, key, path, body, str(error))
        self._know_fallback(answer.get("model"))
        self._deliver_in_passing()
        told = self._outbox.told.get((person, key))
        return Decision(person, key, answer["action"] if told is None else told, answer, body)

    def learn(
        self,
        decision: Decision | str,
        reward: float,
        *,
        action: Scalar | None = None,
        observed_at: datetime | None = None,
    ) -> Told:
        """Tell what came of a decision, and what was really done if not that; later, if no server answers."""
        moment = written(observed_at or datetime.now(UTC))
        body = {"reward": float(reward), "observed_at": moment}
        if action is None and isinstance(decision, Decision) and self._may_differ(decision):
            action = decision.action
        if action is not None:
            body["action"] = action
        return self._tell(decision, "POST", "outcome", body)

    def correct(
        self, decision: Decision | str, reward: float, *, supersedes: int, why: str, action: Scalar | None = None
    ) -> Told:
        """Replace an outcome; `supersedes` is the `event` of the answer that told it."""
        body = {"reward": float(reward), "supersedes": supersedes, "why": why}
        return self._tell(decision, "PUT", "outcome", body if action is None else {**body, "action": action})

    def void(self, decision: Decision | str, why: str = "not_shown") -> Told:
        """Say that a decision came to nothing: not_shown, not_carried_out or withdrawn."""
        return self._tell(decision, "POST", "void", {"why": why})

    def observe(self, person: str, context: Mapping[str, Any], *, key: str | None = None) -> Told:
        """Tell of a visit without a choice."""
        path = _path_of(person, "observations")
        body, key = _plain({"context": context}), key or secrets.token_hex(12)
        return self._send_or_keep(person, method="POST", path=path, body=body, key=key)

    def preview(self, person: str, context: Mapping[str, Any], **given: Any) -> Mapping[str, Any]:
        """Ask what would be decided; nothing is stored, and without a server there is no answer."""
        body = _plain({"context": context, "dry_run": True, **given})
        answer: Mapping[str, Any] = self._wire.send("POST", _path_of(person, "decisions"), body)
        return answer

    def status(self) -> Mapping[str, Any]:
        """Say how the server is."""
        answer: Mapping[str, Any] = self._wire.send("GET", "/v1/status")
        return answer

    def deliver(self) -> int:
        """Deliver all that waits, in order; give how much still does. Called in passing by every other call, too."""
        with suppress(UnreachableError):
            self._deliver(self._outbox.waiting)
        return self.waiting

    def close(self) -> None:
        """Let go of connections and outbox; what waits stays in its file."""
        self._wire.close()
        self._outbox.close()

    def _decide_here(self, person: str, key: str, path: str, body: dict[str, Any], cause: str) -> Decision:
        before = self._outbox.find(person, key)
        if before is not None:
            asked = {name: value for name, value in before.body.items() if name != "made"}
            if asked != body:
                raise DecisionError(f"the key {key!r} came before with another request. Give each visit its own key.")
            return self._as_told(person, key, before.body, cause)
        if "mode" not in body:
            drawn, fallback = self._draw(person, key, body, cause)
            made = {"action": drawn.action, "propensity": drawn.propensity, "fallback": fallback}
            body = {**body, "made": {**made, "cause": cause[:400], "decided_at": written(datetime.now(UTC))}}
        self._outbox.put(person=person, method="POST", path=path, body=body, key=key)
        return self._as_told(person, key, body, cause)

    def _as_told(self, person: str, key: str, body: dict[str, Any], cause: str) -> Decision:
        made = body.get("made")
        action = made["action"] if made is not None else body.get("taken")
        if action is None:  # in shadow: nobody follows
            action = self._draw(person, key, body, cause)[0].action
        answer = {
            "action": action,
            "propensity": None if made is None else made.get("propensity"),
            "reason": f"the declared fallback: {cause}",
            "fallback": {"severity": "yellow", "cause": f"decided by the client: {cause}"},
        }
        return Decision(person, key, action, answer, body)

    def _draw(self, person: str, key: str, body: dict[str, Any], cause: str) -> tuple[Drawn, Scalar | None]:
        """Draw the declared fallback, and say what is declared as far as this client knows."""
        declared = self._given or self._outbox.declared
        if declared is None:
            raise UnreachableError(
                f"{cause} It was never reached, so nobody knows what to fall back on: give `actions` and `fallback`."
            )
        by_text = {str(action): action for action in declared["actions"]}
        allowed = [by_text.get(str(one), one) for one in body.get("allowed", declared["actions"])]
        ruled_out = {str(one) for one in body.get("forbidden", ())}
        left = [one for one in dict.fromkeys(allowed) if str(one) not in ruled_out]
        if not left:
            raise DecisionError("all actions are ruled out. Allow at least one.")
        fallback = declared["fallback"]
        uniform = fallback == UNIFORM and UNIFORM not in by_text
        return draw(None if uniform else fallback, left, person, key), fallback

    def _may_differ(self, decision: Decision) -> bool:
        """Whether the server may have stored another action than the one that was told, and done."""
        return decision.made_here or (decision.person, decision.key) in self._outbox.told

    def _tell(self, decision: Decision | str, method: str, what: str, body: dict[str, Any]) -> Told:
        path = f"/v1/decisions/{{decision}}/{what}"
        if isinstance(decision, str):
            return self._send_or_keep(NOBODY, method=method, path=_named(path, decision), body=body)
        if decision.decision_id is not None:
            path = _named(path, decision.decision_id)
            return self._send_or_keep(decision.person, method=method, path=path, body=body)
        first = {
            "path": _path_of(decision.person, "decisions"),
            "body": dict(decision.request),
            "key": decision.key,
        }
        return self._send_or_keep(decision.person, method=method, path=path, body=body, first=first)

    def _send_or_keep(self, person: str, **request: Any) -> Told:
        """Send a request behind all that waits for the same person, or put it there."""
        try:
            self._deliver_for({person, NOBODY})
            answer = self._send(Letter(0, person, **request))
        except UnreachableError:
            self._outbox.put(person=person, **request)
            return Told(None)
        self._deliver_in_passing()
        return Told(answer)

    def _send(self, letter: Letter) -> Any:
        path = letter.path
        if letter.first is not None:
            decided = self._wire.send("POST", letter.first["path"], letter.first["body"], letter.first["key"])
            path = _named(path, decided["decision_id"])
        return self._wire.send(letter.method, path, letter.body, letter.key)

    def _deliver_for(self, people: set[str]) -> None:
        letters = self._outbox.waiting_for(people)
        if letters:
            self._deliver(letters)

    def _deliver_in_passing(self) -> None:
        letters = self._outbox.waiting[:IN_PASSING]
        if letters and not self._delivering.locked():
            with suppress(UnreachableError):  # they wait on
                self._deliver(letters)

    def _deliver(self, letters: Sequence[Letter]) -> None:
        with self._delivering:
            still = {letter.number for letter in self._outbox.waiting}
            for letter in letters:
                if letter.number in still:
                    self._deliver_one(letter)

    def _deliver_one(self, letter: Letter) -> None:
        try:
            answer = self._send(letter)
        except RefusedError as error:
            if error.status in NOT_THE_LETTERS_FAULT:
                raise
            beside = self._outbox.set_aside(letter, str(error))
            warnings.warn(f"the server refused what had waited: {error} It is in {beside}.", IlbWarning, stacklevel=2)
            return
        made = letter.body.get("made")
        if made is not None and letter.key is not None and answer["action"] != made["action"]:
            self._outbox.remember_told(letter.person, letter.key, made["action"])
        self._outbox.settle(letter)

    def _know_fallback(self, model: str | None = None) -> None:
        """Ask what to fall back on, at the first contact and whenever another model is in charge."""
        known = self._outbox.declared
        if self._given is not None or (known is not None and model in (None, known["model"])):
            return
        try:
            said = self._wire.send("GET", "/v1/model")
        except UnreachableError:
            if model is None:
                raise
            return  # next time
        names = {"actions": "actions", "fallback": "fallback", "model": "fingerprint"}
        self._outbox.remember_declared({ours: said[theirs] for ours, theirs in names.items()})


def _path_of(person: str, what: str) -> str:
    if not person.strip() or "/" in person:
        raise DecisionError(f"a label of a person is not empty and has no slash; got {person!r}.")
    return f"/v1/people/{quote(person, safe='')}/{what}"


def _named(path: str, decision: str) -> str:
    return path.replace("{decision}", quote(decision, safe=""))


def _plain(value: Any) -> Any:
    """Give JSON values: mappings, lists, NumPy's numbers as Python's, and None for what is not a number."""
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and math.isnan(value) else value
