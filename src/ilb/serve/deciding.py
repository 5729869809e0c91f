"""The operation that decides: the model's choice, or the declared fallback, in the three modes."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from ilb.live.decision import Decision
from ilb.serve.desk import Desk, Look
from ilb.serve.engine import NO_MODEL, Failure, Question, Verdict
from ilb.serve.events import Event, Kind, Mode, write_json
from ilb.serve.fallback import Drawn, draw
from ilb.serve.names import ActionNames, Scalar, shortened
from ilb.serve.operations import AbstractOperation, Answer, Found, Outcome, same_request
from ilb.serve.store.store import Entry

_SECRET, _NUMBERS = secrets.token_bytes(32), count()


def new_id() -> str:
    """Make an id that no other decision has and nobody can guess, without a call of the system for each."""
    return hashlib.sha256(_SECRET + next(_NUMBERS).to_bytes(8, "big")).hexdigest()[:24]


@dataclass
class Decide(AbstractOperation):
    """A decision for a person now. `request` is what is compared when its key comes again."""

    person: str
    key: str
    request: dict[str, Any]
    made: dict[str, Any] | None = None
    """A decision that the client has made by itself, because nobody answered."""
    dry: bool = False
    decision: None = field(default=None, init=False)
    look: Look = field(default=Look(), init=False)
    id: str = field(default_factory=new_id)

    def settled(self, found: Found) -> Answer | None:
        if found.repeat is not None:
            return same_request(found.repeat, Kind.DECISION, self.request)
        found.desk.open_actions(self._asked(found))
        if self.made is not None:
            found.desk.done(self.made["action"])
        self.look = found.desk.look_at(found.person, self.request["context"])
        return None

    def question(self, found: Found) -> Question:
        asked = self._asked(found)
        ruled = (asked.get("allowed"), asked.get("forbidden"))
        return Question(found.person, found.head, self.id, found.at, asked["context"], *ruled)

    def outcome(self, found: Found, verdict: Verdict | None) -> Outcome:
        verdict, request = verdict or Verdict(failure=NO_MODEL), self._asked(found)
        answer = self._answer(found, request, verdict)
        text = write_json(answer)
        if self.dry:
            return Outcome(Answer(200, text))
        number = verdict.decision.number if verdict.decision is not None else None
        body = {"request": request, "taken": request.get("taken"), "live_number": number}
        if self.made is not None:
            body["made"] = self.made
        whole = f'{write_json(body)[:-1]},"answer":{text}}}'  # the answer is long, and was written already
        event = Event(
            found.person, found.head.events + 1, Kind.DECISION, found.at, {**body, "answer": answer}, self.id, self.key
        )
        return Outcome(Answer(201, text), Entry(event, verdict.state, found.head.began, whole), verdict)

    def _asked(self, found: Found) -> dict[str, Any]:
        return found.desk.named(self.request, is_done=self.made is not None)

    def _answer(self, found: Found, request: dict[str, Any], verdict: Verdict) -> dict[str, Any]:
        mode, taken = Mode(request.get("mode", Mode.LIVE)), request.get("taken")
        numbers, failure = self._numbers(found.desk, request, verdict)
        if mode is Mode.APPRENTICE:
            numbers = {**numbers, "action": taken, "propensity": None}
        return {
            "decision_id": None if self.dry else self.id,
            "number": found.head.decisions,
            "mode": mode,
            **numbers,
            "fallback": None if failure is None else failure._asdict(),
            "warnings": list(self.look.warnings),
            "model": found.desk.model,
            "policy": found.desk.policy,
            "tags": request.get("tags") or {},
            "decided_at": found.at if self.made is None else self.made["decided_at"],
        }

    def _numbers(self, desk: Desk, request: dict[str, Any], verdict: Verdict) -> tuple[dict[str, Any], Failure | None]:
        """Give what was chosen and the numbers behind it: the client's, the model's, or the fallback's."""
        if self.made is None and verdict.decision is not None:
            return numbers_of(verdict.decision, desk.names), None
        drawn = draw(desk.declared, desk.open_actions(request), self.person, self.key)
        if self.made is None:
            failure = verdict.failure or NO_MODEL
            return _of_fallback(drawn, failure), failure
        failure = Failure("yellow", f"decided by the client: {self.made['cause']}")
        told = self.made.get("propensity")
        propensity = None if told is None else float(told)
        return _of_client(drawn, failure, desk.done(self.made["action"]), propensity), failure


def numbers_of(decision: Decision, names: ActionNames) -> dict[str, Any]:
    """Give what the model chose and the numbers behind it, as they are answered and stored."""
    action = names.name(decision.action)
    return {
        "action": action,
        "would": action,
        "propensity": shortened(decision.propensity),
        "propensities": names.by_name(decision.propensities),
        "expected_reward": names.by_name(decision.expected_reward),
        "reward_std": names.by_name(decision.reward_std),
        "probability_best": names.by_name(decision.probability_best),
        "misfit": shortened(decision.misfit),
        "reason": decision.reason,
    }


def _of_fallback(drawn: Drawn, failure: Failure) -> dict[str, Any]:
    return {
        "action": drawn.action,
        "would": None,
        "propensity": shortened(drawn.propensity),
        "propensities": {name: shortened(value) for name, value in drawn.propensities.items()},
        "expected_reward": None,
        "reward_std": None,
        "probability_best": None,
        "misfit": None,
        "reason": f"the declared fallback: {failure.cause}",
    }


def _of_client(drawn: Drawn, failure: Failure, action: Scalar, propensity: float | None) -> dict[str, Any]:
    """Give what the client drew, with its own propensity; one that told none made the draw that is made here."""
    numbers, same = _of_fallback(drawn, failure), action == drawn.action
    told = numbers["propensity"] if propensity is None else shortened(propensity)
    if same and told == numbers["propensity"]:
        return numbers
    return {**numbers, "action": action, "propensity": None if propensity is None else told, "propensities": None}
