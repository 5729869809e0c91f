"""The HTTP interface: the application, and the routes that decide and learn; the work is done by `Service`."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import Response

from ilb.serve import answers, counter, reading
from ilb.serve.bodies import CorrectionBody, DecisionBody, ObservationBody, OutcomeBody, VoidBody
from ilb.serve.door import Door
from ilb.serve.express import Express
from ilb.serve.keys import Keys, Role
from ilb.serve.metrics import Metrics
from ilb.serve.office import PROBLEMS, DecisionId, IdempotencyKey, Office, Person, office_of
from ilb.serve.operations import Answer
from ilb.serve.page.routes import Pages, pages
from ilb.serve.postbox import Postbox
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
) -> Door:
    """Make the application; without keys it answers on loopback only. `reader` is what the page reads the store by."""
    metrics = Metrics()
    service.watch = lambda found, event: metrics.watch(found, event, service.noise)
    app = FastAPI(title="ILB", version=__version__, description=ABOUT, redoc_url=None, docs_url=None)
    postbox = Postbox()
    service.turned = postbox.empty
    office = app.state.office = Office(service, metrics, Health(service), label, postbox)
    app.state.pages = Pages(service, reader or service.store, office.health, keys, label)
    app.state.routers = [router, reading.router, pages]
    for one in app.state.routers:
        app.include_router(one)
    answer_refusals(app)
    # In front of the framework, not among its middleware, which stands behind its telemetry.
    return Door(Express(app, office=office), keys=keys, metrics=metrics, state=app.state)


def _as_json(answer: Answer) -> Response:
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
    return _as_json(await counter.decide(office_of(request, Role.DECIDE), person, body, key))


@router.post(
    "/v1/decisions/{decision}/outcome",
    status_code=201,
    summary="Tell what came of a decision",
    responses={200: {"model": answers.OutcomeAnswer}, 201: {"model": answers.OutcomeAnswer}},
    tags=["decide"],
)
async def learn(request: Request, decision: DecisionId, body: OutcomeBody) -> Response:
    """Take in a reward. 201: new. 200: it was told before. 409: another one was told before."""
    return _as_json(await counter.learn(office_of(request, Role.DECIDE), decision, body))


@router.put(
    "/v1/decisions/{decision}/outcome",
    status_code=201,
    summary="Correct an outcome",
    responses={200: {"model": answers.CorrectionAnswer}, 201: {"model": answers.CorrectionAnswer}},
    tags=["decide"],
)
async def correct(request: Request, decision: DecisionId, body: CorrectionBody) -> Response:
    """Replace an outcome. The old one stays in the log; what was decided in between stays as it was decided."""
    return _as_json(await counter.correct(office_of(request, Role.DECIDE), decision, body))


@router.post(
    "/v1/decisions/{decision}/void",
    status_code=201,
    summary="Say that a decision came to nothing",
    responses={200: {"model": answers.VoidAnswer}, 201: {"model": answers.VoidAnswer}},
    tags=["decide"],
)
async def void(request: Request, decision: DecisionId, body: VoidBody) -> Response:
    """Not shown, not carried out, or withdrawn: no outcome is waited for, and nothing is learned but the context."""
    return _as_json(await counter.void(office_of(request, Role.DECIDE), decision, body))


@router.post(
    "/v1/people/{person}/observations",
    status_code=201,
    summary="Tell of a visit without a choice",
    responses={200: {"model": answers.ObservationAnswer}, 201: {"model": answers.ObservationAnswer}},
    tags=["decide"],
)
async def observe(request: Request, person: Person, body: ObservationBody, key: IdempotencyKey = None) -> Response:
    """Take in a context without deciding anything."""
    return _as_json(await counter.observe(office_of(request, Role.DECIDE), person, body, key))
