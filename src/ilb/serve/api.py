"""The HTTP interface: the application, and the routes that decide and learn; the work is done by `Service`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import Response

from ilb.serve import answers, reading
from ilb.serve.bodies import CorrectionBody, DecisionBody, ObservationBody, OutcomeBody, VoidBody
from ilb.serve.deciding import Decide
from ilb.serve.door import Door
from ilb.serve.keys import Keys, Role
from ilb.serve.metrics import Metrics
from ilb.serve.office import (
    PROBLEMS,
    DecisionId,
    IdempotencyKey,
    Office,
    Person,
    id_of,
    key_of,
    label_of,
    office_of,
)
from ilb.serve.operations import AbstractOperation, Correct, Learn, Observe, Void
from ilb.serve.page.routes import Pages, pages
from ilb.serve.problems import ProblemError
from ilb.serve.refusals import answer_refusals
from ilb.serve.service import Service
from ilb.serve.status import Health
from ilb.serve.store.store import AbstractStore
from ilb.serve.strict import StrictRoute
from ilb.version import __version__

ABOUT = """
Which action for this person, now? Ask for a decision, carry it out, tell what came of it.

An answer means that it is stored. Every request may be repeated: a decision or an observation with the same
`Idempotency-Key` and body gets the same bytes, an equal outcome is taken once. When the model fails, the declared
fallback decides, and says so. Research software; not a medical device.
"""

router = APIRouter(route_class=StrictRoute, responses=PROBLEMS)


def make_app(
    service: Service,
    *,
    keys: Keys | None = None,
    label: Callable[[str], str] = lambda label: label,
    reader: AbstractStore | None = None,
) -> FastAPI:
    """Make the application; without keys it answers on loopback only. `reader` is what the page reads the store by."""
    metrics = Metrics()
    service.watch = lambda found, event: metrics.watch(found, event, service.noise)
    app = FastAPI(title="ILB", version=__version__, description=ABOUT, redoc_url=None, docs_url=None)
    office = app.state.office = Office(service, metrics, Health(service), label)
    app.state.pages = Pages(service, reader or service.store, office.health, keys, label)
    app.state.routers = [router, reading.router, pages]
    for one in app.state.routers:
        app.include_router(one)
    app.add_middleware(Door, keys=keys, metrics=metrics)
    answer_refusals(app)
    return app


async def _carry_out(office: Office, operation: AbstractOperation) -> Response:
    answer = await asyncio.wrap_future(office.service.submit(operation))
    return Response(answer.text, answer.status, media_type="application/json")


@router.post(
    "/v1/people/{person}/decisions",
    status_code=201,
    summary="Decide for a person",
    responses={200: {"model": answers.DecisionAnswer}, 201: {"model": answers.DecisionAnswer}},
    tags=["decide"],
)
async def decide(request: Request, person: Person, body: DecisionBody, key: IdempotencyKey = None) -> Response:
    """Choose one of the allowed actions by what is known of the person, and store that.

    201: decided now. 200: the same request came before, and these are the same bytes; or a dry run.
    """
    office = office_of(request, Role.DECIDE)
    asked = body.plain()
    made, dry = asked.pop("made", None), bool(asked.pop("dry_run", False))
    operation = Decide(label_of(office, person), key_of(key, needed=not dry), asked, made, dry)
    answer = await _carry_out(office, operation)
    office.metrics.far.inc(operation.look.is_far)
    return answer


@router.post(
    "/v1/decisions/{decision}/outcome",
    status_code=201,
    summary="Tell what came of a decision",
    responses={200: {"model": answers.OutcomeAnswer}, 201: {"model": answers.OutcomeAnswer}},
    tags=["decide"],
)
async def learn(request: Request, decision: DecisionId, body: OutcomeBody) -> Response:
    """Take in a reward. 201: new. 200: it was told before. 409: another one was told before."""
    office = office_of(request, Role.DECIDE)
    told = body.plain()
    try:
        operation = Learn(id_of(decision), float(body.reward), told.get("action"), told.get("observed_at"))
        answer = await _carry_out(office, operation)
    except ProblemError as problem:
        kinds = {404: "unknown", 409: "conflict"}
        if problem.status in kinds:
            office.metrics.outcomes.labels(kinds[problem.status]).inc()
        raise
    if answer.status_code == 200:
        office.metrics.outcomes.labels("repeat").inc()
    return answer


@router.put(
    "/v1/decisions/{decision}/outcome",
    status_code=201,
    summary="Correct an outcome",
    responses={200: {"model": answers.CorrectionAnswer}, 201: {"model": answers.CorrectionAnswer}},
    tags=["decide"],
)
async def correct(request: Request, decision: DecisionId, body: CorrectionBody) -> Response:
    """Replace an outcome. The old one stays in the log; what was decided in between stays as it was decided."""
    office = office_of(request, Role.DECIDE)
    action = body.plain().get("action")
    return await _carry_out(office, Correct(id_of(decision), float(body.reward), body.supersedes, body.why, action))


@router.post(
    "/v1/decisions/{decision}/void",
    status_code=201,
    summary="Say that a decision came to nothing",
    responses={200: {"model": answers.VoidAnswer}, 201: {"model": answers.VoidAnswer}},
    tags=["decide"],
)
async def void(request: Request, decision: DecisionId, body: VoidBody) -> Response:
    """Not shown, not carried out, or withdrawn: no outcome is waited for, and nothing is learned but the context."""
    return await _carry_out(office_of(request, Role.DECIDE), Void(id_of(decision), body.why))


@router.post(
    "/v1/people/{person}/observations",
    status_code=201,
    summary="Tell of a visit without a choice",
    responses={200: {"model": answers.ObservationAnswer}, 201: {"model": answers.ObservationAnswer}},
    tags=["decide"],
)
async def observe(request: Request, person: Person, body: ObservationBody, key: IdempotencyKey = None) -> Response:
    """Take in a context without deciding anything."""
    office = office_of(request, Role.DECIDE)
    operation = Observe(label_of(office, person), key_of(key), body.plain())
    answer = await _carry_out(office, operation)
    office.metrics.far.inc(operation.look.is_far)
    return answer
