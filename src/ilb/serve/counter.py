"""The counter: what is asked that changes anything, each kind carried out on a body that was read and fits.

Two ways lead here: the routes of the framework (`api`), and `express`, which does without them.
"""

from __future__ import annotations

from ilb.serve.bodies import CorrectionBody, DecisionBody, ObservationBody, OutcomeBody, VoidBody
from ilb.serve.deciding import Decide
from ilb.serve.office import Office, id_of, key_of, label_of
from ilb.serve.operations import AbstractOperation, Answer, Correct, Learn, Observe, Void
from ilb.serve.problems import ProblemError

OF_OUTCOMES = {404: "unknown", 409: "conflict"}
"""What refused outcomes are counted as, by their status."""


async def decide(office: Office, person: str, body: DecisionBody, key: str | None) -> Answer:
    """Choose one of the allowed actions by what is known of the person, and store that."""
    asked = body.plain()
    made, dry = asked.pop("made", None), bool(asked.pop("dry_run", False))
    operation = Decide(label_of(office, person), key_of(key, needed=not dry), asked, made, dry)
    answer = await _carry_out(office, operation)
    if operation.look.is_far:
        office.metrics.far.inc()
    return answer


async def learn(office: Office, decision: str, body: OutcomeBody, key: str | None = None) -> Answer:
    """Take in a reward."""
    del key
    told = body.plain()
    try:
        operation = Learn(id_of(decision), float(body.reward), told.get("action"), told.get("observed_at"))
        answer = await _carry_out(office, operation)
    except ProblemError as problem:
        if problem.status in OF_OUTCOMES:
            office.metrics.outcomes.labels(OF_OUTCOMES[problem.status]).inc()
        raise
    if answer.status == 200:
        office.metrics.outcomes.labels("repeat").inc()
    return answer


async def correct(office: Office, decision: str, body: CorrectionBody, key: str | None = None) -> Answer:
    """Replace an outcome."""
    del key
    action = body.plain().get("action")
    return await _carry_out(office, Correct(id_of(decision), float(body.reward), body.supersedes, body.why, action))


async def void(office: Office, decision: str, body: VoidBody, key: str | None = None) -> Answer:
    """Stop waiting for an outcome."""
    del key
    return await _carry_out(office, Void(id_of(decision), body.why))


async def observe(office: Office, person: str, body: ObservationBody, key: str | None) -> Answer:
    """Take in a context without deciding anything."""
    operation = Observe(label_of(office, person), key_of(key), body.plain())
    answer = await _carry_out(office, operation)
    if operation.look.is_far:
        office.metrics.far.inc()
    return answer


async def _carry_out(office: Office, operation: AbstractOperation) -> Answer:
    return await office.postbox.answer(office.service.submit(operation))
