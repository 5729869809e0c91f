"""What requests may hold: types, bounds and examples. The OpenAPI document is made from these."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    FiniteFloat,
    StrictBool,
    StrictInt,
    StrictStr,
    model_validator,
)

from ilb.live.slips import LARGEST
from ilb.serve.events import Mode, written
from ilb.serve.names import as_plain

LONGEST_LABEL = 200
LONGEST_TEXT = 500
MOST_COLUMNS = 2000
MOST_ACTIONS = 1000
MOST_TAGS = 20
LARGEST_NUMBER = 1e15

Text = Annotated[StrictStr, Field(max_length=LONGEST_TEXT)]
Whole = Annotated[StrictInt, Field(ge=-(2**53), le=2**53)]
Real = Annotated[FiniteFloat, Field(strict=True, ge=-LARGEST_NUMBER, le=LARGEST_NUMBER)]
Value = StrictBool | Whole | Real | Text | None
Action = StrictBool | Whole | Real | Annotated[StrictStr, Field(max_length=LONGEST_TEXT)]
Reward = Annotated[FiniteFloat, Field(strict=True, ge=-LARGEST, le=LARGEST)]


class Body(BaseModel):
    """A body; fields that are not known are refused, so that a misspelt one is noticed."""

    model_config = ConfigDict(extra="forbid")

    def plain(self) -> dict[str, Any]:
        """Give what was said, without what was left out, in the one form in which it is stored and compared."""
        plain: dict[str, Any] = _plainly(self.model_dump(exclude_none=False, exclude_unset=True))
        return plain


class MadeByClient(Body):
    """A decision that the client made by itself, because no server answered."""

    action: Action = Field(description="What the client chose: the declared fallback, drawn from person and key.")
    cause: Text = Field(description="Why it decided by itself.", examples=["connection refused"])
    decided_at: AwareDatetime
    propensity: Annotated[FiniteFloat, Field(strict=True, gt=0, le=1)] | None = Field(
        None, description="With what probability it was to be drawn; null if the client does not know."
    )
    fallback: Action | None = Field(None, description="The fallback that the client knew as declared.")


class DecisionBody(Body):
    """What a decision is asked with."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"context": {"pain": 1.4, "mobility": -0.3}, "forbidden": ["B"]}]},
    )

    context: dict[Annotated[str, Field(max_length=LONGEST_TEXT)], Value] = Field(
        max_length=MOST_COLUMNS, description="The measurements of now, by column of the logs; null where missing."
    )
    allowed: list[Action] | None = Field(
        None, min_length=1, max_length=MOST_ACTIONS, description="The actions that are open (default: all)."
    )
    forbidden: list[Action] | None = Field(None, max_length=MOST_ACTIONS, description="The actions that are not.")
    mode: Mode = Field(
        Mode.LIVE, description="live: it is carried out. shadow: it is not. apprentice: `taken` is done."
    )
    taken: Action | None = Field(None, description="What is done today; needed by an apprentice, open to a shadow.")
    tags: dict[Annotated[str, Field(max_length=LONGEST_TEXT)], Text] = Field(
        default_factory=dict, max_length=MOST_TAGS, description="Anything to find the decision by; kept with it."
    )
    dry_run: StrictBool = Field(False, description="Only ask what would be decided; nothing is stored.")
    made: MadeByClient | None = Field(None, description="A decision that the client made while no server answered.")

    @model_validator(mode="after")
    def _say_what_is_done(self) -> DecisionBody:
        if self.mode is Mode.APPRENTICE and self.taken is None:
            raise ValueError("an apprentice is told what is done: give `taken`")
        if self.mode is Mode.LIVE and self.taken is not None:
            raise ValueError("in live mode the decision is carried out: leave out `taken`, or use another mode")
        if self.made is not None and self.mode is not Mode.LIVE:
            raise ValueError("only live decisions can have been made by the client")
        return self


class OutcomeBody(Body):
    """What came of a decision."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"reward": 1.7}]})

    reward: Reward
    action: Action | None = Field(None, description="What was really done, if not what was decided.")
    observed_at: AwareDatetime | None = Field(None, description="When it was observed (default: now).")


class CorrectionBody(Body):
    """A corrected outcome."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"reward": 0.7, "supersedes": 2, "why": "typing error"}]}
    )

    reward: Reward
    action: Action | None = Field(None, description="What was really done (default: as before).")
    supersedes: Annotated[StrictInt, Field(ge=1, le=2**31)] = Field(description="The `event` that this one replaces.")
    why: Text


class VoidBody(Body):
    """Why a decision came to nothing."""

    why: Literal["not_shown", "not_carried_out", "withdrawn"] = "not_shown"


class ObservationBody(Body):
    """A visit without a choice."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"context": {"pain": 1.4, "mobility": -0.3}}]}
    )

    context: dict[Annotated[str, Field(max_length=LONGEST_TEXT)], Value] = Field(max_length=MOST_COLUMNS)


class ModelBody(Body):
    """A model to be staged: a directory on the disk of the server."""

    path: Annotated[StrictStr, Field(min_length=1, max_length=4096)]
    policy: Text | None = None


def _plainly(value: Any) -> Any:
    """Give plain JSON values, whole floats as integers: 1 and 1.0 are the same request."""
    if isinstance(value, dict):
        return {name: _plainly(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_plainly(one) for one in value]
    if hasattr(value, "isoformat"):
        return written(value)
    return str(value) if isinstance(value, Mode) else as_plain(value)
