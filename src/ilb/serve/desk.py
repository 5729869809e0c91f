"""Desk: what all operations of a turn share, and whether a request makes sense to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ilb.errors import IlbError
from ilb.live.slips import FAR, LARGEST, check_contexts
from ilb.logs.messages import overheard
from ilb.serve.fallback import UNIFORM
from ilb.serve.names import ActionNames, Scalar
from ilb.serve.people import ServedModel
from ilb.serve.problems import ProblemError


class Look(NamedTuple):
    """What was seen of a context: whether it is far from the logs, and sentences for whoever sent it."""

    is_far: bool = False
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Desk:
    """Names of actions, the declared fallback, and the model in charge, if there is one.

    `past` has the actions of all models that were ever in charge, by their text: decisions among them have outcomes.
    """

    names: ActionNames
    declared: Scalar | None = None
    served: ServedModel | None = None
    past: Mapping[str, Scalar] = field(default_factory=dict)

    @property
    def model(self) -> str | None:
        """The fingerprint of the model in charge."""
        return None if self.served is None else self.served.fingerprint

    @property
    def policy(self) -> str:
        return UNIFORM if self.served is None else self.served.policy

    def done(self, name: Scalar) -> Scalar:
        """Give something that was done by its name; raises if no model ever knew it."""
        found = self.names.find(name)
        if found is None and str(name) in self.past:
            return self.past[str(name)]
        return self._open(name)

    def _open(self, name: Scalar) -> Scalar:
        """Give something that can be done by its name; raises if the model in charge does not know it."""
        return self.names.name(self.names.label(name))

    def named(self, request: dict[str, Any], *, is_done: bool = False) -> dict[str, Any]:
        """Give a request with all actions by their names; raises for those that are not known.

        What is to be done must be known to the model in charge, what was done already (`is_done`) to any one before.
        """
        named = dict(request)
        if request.get("allowed") is not None:
            name = self.done if is_done else self._open
            named["allowed"] = [name(one) for one in request["allowed"]]
        if request.get("forbidden") is not None:
            named["forbidden"] = [self.done(one) for one in request["forbidden"]]
        if request.get("taken") is not None:
            named["taken"] = self.done(request["taken"])
        return named

    def open_actions(self, request: dict[str, Any]) -> list[Scalar]:
        """The actions that a request leaves open; raises if there are none."""
        allowed = request.get("allowed")
        ruled_out = {str(name) for name in request.get("forbidden") or ()}
        kept = dict.fromkeys(self.names.all if allowed is None else allowed)
        left = [name for name in kept if str(name) not in ruled_out]
        if not left:
            raise ProblemError(422, "nothing-left", "All actions are ruled out. Allow at least one.")
        return left

    def look_at(self, person: str, context: dict[str, Any]) -> Look:
        """Say what is odd about a context; raises if the model can't read it, which is the sender's slip."""
        if self.served is None:
            return Look()
        schema = self.served.schema
        with overheard() as said:
            try:
                row = schema.encode(context)
            except IlbError as error:
                raise ProblemError(422, "context", str(error)) from error
        farthest = float(np.abs(row).max(initial=0.0))
        if FAR < farthest <= LARGEST:
            check_contexts(schema, row[None], [person], said.append)
        return Look(farthest > FAR, tuple(said))
