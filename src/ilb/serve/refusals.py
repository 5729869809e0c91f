"""Errors as answers: every refusal is a problem in words, and repeats nothing of what the request held."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from ilb.serve.metrics import Metrics
from ilb.serve.problems import ProblemError, cannot_store
from ilb.serve.store.store import StoreUnavailableError

NAMED = 10
"""Fields that are named at once."""


def answer_refusals(app: FastAPI) -> None:
    """Let every error of the application be answered as a problem."""
    app.add_exception_handler(ProblemError, _problem)
    app.add_exception_handler(HTTPException, _http_problem)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(StoreUnavailableError, _unavailable)


def refusal(problem: ProblemError, metrics: Metrics) -> Response:
    """Count a problem, and give the answer that tells it."""
    metrics.refused.labels(str(problem.status), problem.kind).inc()
    headers = {} if problem.retry_after is None else {"Retry-After": str(problem.retry_after)}
    return Response(problem.text(), problem.status, headers, media_type="application/problem+json")


async def _problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, ProblemError)
    return refusal(error, request.app.state.office.metrics)


async def _http_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    words = {404: "There is nothing at this address; /openapi.json lists what there is.", 405: "Not with this method."}
    problem = ProblemError(error.status_code, "http", words.get(error.status_code, "The body can't be read as JSON."))
    answer = await _problem(request, problem)
    answer.headers.update(error.headers or {})
    if error.status_code == 405:  # those of all routes at this address, and not of the first alone
        answer.headers["Allow"] = ", ".join(sorted(_methods(request.app.state.routers, request.url.path)))
    return answer


def _methods(routers: list[APIRouter], path: str) -> set[str]:
    routes = [route for router in routers for route in router.routes if isinstance(route, APIRoute)]
    return {method for route in routes if route.path_regex.match(path) for method in route.methods or ()}


async def _invalid(request: Request, error: Exception) -> Response:
    """Say where a request does not make sense, without repeating what it held."""
    assert isinstance(error, RequestValidationError)
    found = error.errors()
    where = []
    for kind, words in {"missing": "missing", "extra_forbidden": "not known"}.items():
        places = [_place(one) for one in found if one["type"] == kind]
        if places:
            where.append(f"{words}: {', '.join(places[:NAMED])}{', …' if len(places) > NAMED else ''}")
    for one in [one for one in found if one["type"] not in ("missing", "extra_forbidden")][:3]:
        cause = str(one.get("ctx", {}).get("error", ""))
        where.append(f"{_place(one)}: {one['msg'][:200]}" + (f" ({cause[:200]})" if cause not in one["msg"] else ""))
    return await _problem(request, ProblemError(422, "invalid", "; ".join(where) + ". /openapi.json says what fits."))


def _place(error: Mapping[str, Any]) -> str:
    return ".".join(str(part) for part in error["loc"])[:200]


async def _unavailable(request: Request, error: Exception) -> Response:
    return await _problem(request, cannot_store(str(error)))
