"""The routes that read, watch and administer: people, decisions, the log, status, models."""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from starlette.concurrency import run_in_threadpool

from ilb.errors import IlbError
from ilb.serve import answers
from ilb.serve.bodies import ModelBody
from ilb.serve.events import write_json
from ilb.serve.keys import Role
from ilb.serve.log import as_table, parquet_bytes, stored_schema, table_rows
from ilb.serve.office import PROBLEMS, DecisionId, Office, Person, id_of, label_of, office_of
from ilb.serve.people import ServedModel
from ilb.serve.problems import ProblemError
from ilb.serve.status import LEVELS, severity_of
from ilb.serve.stories import story_of_decision, story_of_person
from ilb.serve.strict import StrictRoute

router = APIRouter(route_class=StrictRoute, responses=PROBLEMS)


@router.get(
    "/v1/people/{person}", summary="What is stored of a person", response_model=answers.PersonStory, tags=["read"]
)
async def person_story(request: Request, person: Person) -> Response:
    """Give counts and the newest decisions with their outcomes."""
    office = office_of(request, Role.READ)
    story = await run_in_threadpool(story_of_person, office.service.store, label_of(office, person))
    return JSONResponse(story)


@router.delete("/v1/people/{person}", summary="Erase a person", response_model=answers.Erasure, tags=["admin"])
async def erase(request: Request, person: Person) -> Response:
    """Erase label, contexts, rewards and answers for good; that there were decisions stays counted."""
    office = office_of(request)
    erased = await run_in_threadpool(office.service.erase, label_of(office, person))
    return JSONResponse({"erased_events": erased.events, "overwritten": erased.is_overwritten})


@router.get("/v1/decisions/{decision}", summary="A decision", response_model=answers.DecisionStory, tags=["read"])
async def decision_story(request: Request, decision: DecisionId) -> Response:
    """Give a decision with its outcome, as far as there is one."""
    office = office_of(request, Role.READ, Role.DECIDE)
    about = await run_in_threadpool(office.service.store.about, [id_of(decision)])
    return JSONResponse(story_of_decision(about.get(decision, [])))


@router.get(
    "/v1/log",
    summary="The log",
    responses={200: {"content": {"application/x-ndjson": {}, "application/vnd.apache.parquet": {}}}},
    response_class=Response,
    tags=["read"],
)
async def log(
    request: Request,
    since: Annotated[int, Query(ge=0, le=2**62, description="Only what is behind this position of the log.")] = 0,
    format: Annotated[
        Literal["ndjson", "parquet", "events"],
        Query(description="A row for each decision, as JSON lines or Parquet; or all events as they are."),
    ] = "ndjson",
) -> Response:
    """Give a row for each decision, under the names of the columns of the logs, with propensities."""
    office = office_of(request, Role.READ)
    store = office.service.store
    if format == "events":
        lines = (f"{_line(event.as_json())}\n" for event in store.log(since))
        return StreamingResponse(lines, media_type="application/x-ndjson")
    schema = await run_in_threadpool(stored_schema, store)
    if schema is None:
        raise ProblemError(404, "no-model", "The log names no model yet, so its columns have no names.")
    if format == "parquet":
        table = await run_in_threadpool(lambda: parquet_bytes(as_table(table_rows(store, schema, since), schema)))
        return Response(table, media_type="application/vnd.apache.parquet")
    lines = (f"{_line(row)}\n" for row in table_rows(store, schema, since))
    return StreamingResponse(lines, media_type="application/x-ndjson")


@router.get("/v1/status", summary="How the service is", response_model=answers.Status, tags=["watch"])
async def status(request: Request) -> Response:
    """Give severity, cause and remedy of what is not as it should be, counts, and how often a shadow agrees."""
    office = office_of(request, Role.READ, Role.DECIDE)
    return JSONResponse(await run_in_threadpool(office.health.report))


@router.get("/v1/model", summary="The model in charge", response_model=answers.ModelAnswer, tags=["watch"])
async def model(request: Request) -> Response:
    """Give actions, columns of contexts and the declared fallback."""
    return JSONResponse(office_of(request, Role.READ, Role.DECIDE).service.describe())


@router.post(
    "/v1/model",
    status_code=201,
    summary="Stage a model",
    responses={201: {"model": answers.ModelAnswer}},
    tags=["admin"],
)
async def stage(request: Request, body: ModelBody) -> Response:
    """Load a model from the disk of the server and play it in shadow on what comes in; GET tells how it fares."""
    service = office_of(request).service
    try:
        served = await run_in_threadpool(_load, body.path, body.policy, service.seed)
    except (IlbError, OSError) as error:
        raise ProblemError(422, "model", str(error)) from error
    await run_in_threadpool(service.stage, served)
    return JSONResponse(service.describe(), 201)


@router.post(
    "/v1/model/promote",
    summary="Put the staged model in charge",
    response_model=answers.ModelAnswer,
    tags=["admin"],
)
async def promote(request: Request) -> Response:
    """Decide by the staged model from the next request on; states are computed from the events again."""
    service = office_of(request).service
    await run_in_threadpool(service.promote)
    return JSONResponse(service.describe())


@router.get("/livez", summary="Whether the process lives", tags=["watch"])
async def livez() -> dict[str, str]:
    return {"status": "ok"}


@router.get("/readyz", summary="Whether decisions can be stored", tags=["watch"])
async def readyz(request: Request) -> Response:
    office: Office = request.app.state.office
    findings = await run_in_threadpool(office.health.findings)
    severity = severity_of(findings)
    can_store = not any(finding.cause.startswith("nothing can be stored") for finding in findings)
    status = "failing" if not can_store else "ok" if office.service.engine.is_warm else "compiling"
    return JSONResponse({"status": status, "severity": severity}, 200 if status == "ok" else 503)


@router.get("/metrics", summary="Counts for Prometheus", response_class=Response, tags=["watch"])
async def metrics(request: Request) -> Response:
    office = office_of(request, Role.READ)
    findings = await run_in_threadpool(office.health.findings)
    office.metrics.severity.set(LEVELS.index(severity_of(findings)))
    counts = await run_in_threadpool(office.service.store.counts)
    office.metrics.pending.set(counts.get("pending", 0))
    served = office.service.engine.served
    if served is not None:
        office.metrics.model.info({"fingerprint": served.fingerprint, "policy": served.policy})
    return Response(office.metrics.text(), media_type="text/plain; version=0.0.4")


def _load(path: str, policy: str | None, seed: int) -> ServedModel:
    """Load a model and compile what it needs, so that no decision waits for that."""
    served = ServedModel.load(FilePath(path), policy, seed=seed)
    served.warm_up()
    return served


def _line(value: Any) -> str:
    return write_json({name: one.isoformat() if hasattr(one, "isoformat") else one for name, one in value.items()})
