"""What a client is told, and what becomes of what it tells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ilb.serve.fallback import Scalar


@dataclass(frozen=True)
class Decision:
    """A decision. `answer` has all that the server said; `request` is what was asked, for when it must be repeated."""

    person: str
    key: str
    action: Scalar
    answer: Mapping[str, Any]
    request: Mapping[str, Any]

    @property
    def decision_id(self) -> str | None:
        """Its id; None as long as the server does not know of it."""
        return self.answer.get("decision_id")

    @property
    def propensity(self) -> float | None:
        return self.answer.get("propensity")

    @property
    def reason(self) -> str:
        return str(self.answer.get("reason", ""))

    @property
    def fallback(self) -> Mapping[str, str] | None:
        """Why the model did not decide: severity and cause."""
        return self.answer.get("fallback")

    @property
    def warnings(self) -> Sequence[str]:
        """What is odd about the context, in the server's words."""
        return tuple(self.answer.get("warnings", ()))

    @property
    def made_here(self) -> bool:
        """Whether the client decided, because no server answered."""
        return "made" in self.request


class Told(NamedTuple):
    """What became of something that was told: stored with this answer, or None as long as it waits in the outbox."""

    answer: Mapping[str, Any] | None

    @property
    def is_stored(self) -> bool:
        return self.answer is not None
