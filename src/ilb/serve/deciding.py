"""The operation that decides: the model's choice, or the declared fallback, in the three modes."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from ilb.live.decision import Decision
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
class Desk:
    """What all decisions share: names of actions, the declared fallback, and which model and policy are in charge."""

    names: ActionNames
    declared: Scalar | None
    model: str | None
    policy: str


@dataclass
class Decide(AbstractOperation):
    """A decision for a person now. `request` is what is compared when its key comes again."""

    desk: Desk
    person: str
    key: str
    request: dict[str, Any]
    made: dict[str, Any] | None = None
    """A decision that the client has made by itself, because nobody answered."""
    dry: bool = False
    decision: None = field(default=None, init=False)
    id: str = field(default_factory=new_id)

    def settled(self, found: Found) -> Answer | None:
        return None if found.repeat is None else same_request(found.repeat, self.request)

    def question(self, found: Found) -> Question:
        asked = self.request
        ruled = (asked.get("allowed"), asked.get("forbidden"))
        return Question(found.person, found.head, self.id, found.at, asked["context"], *ruled)

    def outcome(self, found: Found, verdict: Verdict | None) -> Outcome:
        verdict = verdict or Verdict(failure=NO_MODEL)
        answer = self._answer(found, verdict)
        text = write_json(answer)
        if self.dry:
            return Outcome(Answer(200, text))
        number = verdict.decision.number if verdict.decision is not None else None
        body = {"request": self.request, "taken": self.request.get("taken"), "live_number": number, "answer": answer}
        event = Event(found.person, found.head.events + 1, Kind.DECISION, found.at, body, self.id, self.key)
        return Outcome(Answer(201, text), Entry(event, verdict.state), verdict)

    def _answer(self, found: Found, verdict: Verdict) -> dict[str, Any]:
        mode, taken = Mode(self.request.get("mode", Mode.LIVE)), self.request.get("taken")
        numbers, failure = self._numbers(verdict)
        if mode is Mode.APPRENTICE:
            numbers = {**numbers, "action": taken, "propensity": None}
        return {
            "decision_id": None if self.dry else self.id,
            "number": found.head.decisions,
            "mode": mode,
            **numbers,
            "fallback": None if failure is None else failure._asdict(),
            "model": self.desk.model,
            "policy": self.desk.policy,
            "tags": self.request.get("tags") or {},
            "decided_at": found.at if self.made is None else self.made["decided_at"],
        }

    def _numbers(self, verdict: Verdict) -> tuple[dict[str, Any], Failure | None]:
        """Give what was chosen and the numbers behind it: the client's, the model's, or the fallback's."""
        if self.made is not None:
            failure = Failure("yellow", f"decided by the client: {self.made['cause']}")
            return _of_fallback(self._draw(), failure, self.made["action"]), failure
        if verdict.decision is not None:
            return numbers_of(verdict.decision, self.desk.names), None
        failure = verdict.failure or NO_MODEL
        return _of_fallback(self._draw(), failure), failure

    def _draw(self) -> Drawn:
        return draw(self.desk.declared, self.open_actions(), self.person, self.key)

    def open_actions(self) -> list[Scalar]:
        """The names of the actions that are not ruled out."""
        label, allowed = self.desk.names.label, self.request.get("allowed")
        kept = self.desk.names.labels if allowed is None else [label(name) for name in allowed]
        ruled_out = {label(name) for name in self.request.get("forbidden") or ()}
        return [self.desk.names.name(one) for one in dict.fromkeys(kept) if one not in ruled_out]


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


def _of_fallback(drawn: Drawn, failure: Failure, made: Scalar | None = None) -> dict[str, Any]:
    known = made is None or made == drawn.action
    return {
        "action": drawn.action if made is None else made,
        "would": None,
        "propensity": shortened(drawn.propensity) if known else None,
        "propensities": {name: shortened(value) for name, value in drawn.propensities.items()} if known else None,
        "expected_reward": None,
        "reward_std": None,
        "probability_best": None,
        "misfit": None,
        "reason": f"the declared fallback: {failure.cause}",
    }
