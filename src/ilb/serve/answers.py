"""What answers hold, for the OpenAPI document; the answers themselves are written by the operations."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

Action = str | int | float | bool


class Problem(BaseModel):
    """Why a request was refused, and what to do (RFC 9457)."""

    type: str = Field(examples=["/problems#unknown-decision"])
    title: str
    status: int
    detail: str


class Fallback(BaseModel):
    """Why the model did not decide."""

    severity: str = Field(description="yellow: by itself it passes. red: someone must look.")
    cause: str


class DecisionAnswer(BaseModel):
    """A decision. Mappings go from actions, as text, to numbers; they are null where the fallback decided."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "decision_id": "5f0c3ab1d2e49f7788aa01bc",
                    "number": 0,
                    "mode": "live",
                    "action": "C",
                    "would": "C",
                    "propensity": 1.0,
                    "propensities": {"A": 0.0, "C": 1.0},
                    "expected_reward": {"A": 0.162, "C": 0.29},
                    "reward_std": {"A": 0.6, "C": 0.58},
                    "probability_best": {"A": 0.59, "C": 0.41},
                    "misfit": 0.1,
                    "reason": "'C' (expected 0.29 ± 0.58, best with probability 0.41) is expected to be best, …",
                    "fallback": None,
                    "warnings": [],
                    "model": "0123456789abcdef",
                    "policy": "Adaptive",
                    "tags": {},
                    "decided_at": "2026-01-02T03:04:05.000000Z",
                }
            ]
        }
    )

    decision_id: str | None = Field(description="Names the decision when its outcome comes; null in a dry run.")
    number: int = Field(description="Counts the person's decisions from 0.")
    mode: str
    action: Action = Field(description="What is to be done; in apprentice mode, what is done today.")
    would: Action | None = Field(description="What the model chose, if it did.")
    propensity: float | None = Field(
        description="The probability with which this action was to be chosen, given all that was known: 1 for a rule "
        "without chance. Null where somebody else chose."
    )
    propensities: dict[str, float] | None
    expected_reward: dict[str, float] | None
    reward_std: dict[str, float] | None
    probability_best: dict[str, float] | None
    misfit: float | None = Field(description="The probability that the model does not fit this person.")
    reason: str
    fallback: Fallback | None
    warnings: list[str] = Field(
        default_factory=list,
        description="What is odd about the context: keys or categories that the model does not know, values far from "
        "the logs. Empty if nothing is.",
    )
    model: str | None
    policy: str
    tags: dict[str, str]
    decided_at: str


class OutcomeAnswer(BaseModel):
    """An outcome as it is stored; `event` is what a correction supersedes."""

    decision_id: str
    event: int
    reward: float
    action: Action
    observed_at: str
    recorded_at: str


class CorrectionAnswer(BaseModel):
    """A correction as it is stored."""

    decision_id: str
    event: int
    reward: float
    action: Action
    supersedes: int
    recorded_at: str


class VoidAnswer(BaseModel):
    """A decision that came to nothing."""

    decision_id: str
    event: int
    why: str
    recorded_at: str


class ObservationAnswer(BaseModel):
    """A visit without a choice."""

    event: int
    recorded_at: str


class DecisionStory(BaseModel):
    """A decision and all that was told of it."""

    person: str
    decision: DecisionAnswer
    request: dict[str, Any]
    outcome: dict[str, Any] | None = Field(description="The outcome in force.")
    corrections: int
    voided: str | None = Field(description="Why it came to nothing.")


class PersonStory(BaseModel):
    """A person: how much there is, and the newest decisions, the newest last."""

    person: str
    events: int
    decisions: int
    pending: int
    first_at: str
    last_at: str
    history: list[DecisionStory]


class Erasure(BaseModel):
    """What was erased."""

    erased_events: int
    overwritten: bool = Field(
        description="False: somebody reads files of the store that hold it; it is overwritten when they end."
    )


class Status(BaseModel):
    """How the service is, with severity, cause and remedy of all that is not as it should be."""

    status: str
    severity: str
    findings: list[dict[str, str]]
    model: str | None
    policy: str | None
    fallback: Action
    counts: dict[str, int]
    agreement: dict[str, Any]
    failures: dict[str, str]
    uptime_seconds: float


class ModelAnswer(BaseModel):
    """The model in charge: what it decides between, from what, and what is done without it."""

    fingerprint: str | None
    policy: str | None
    source: str | None
    actions: list[Action]
    context: list[str]
    fallback: Action
    staged: dict[str, Any] | None
