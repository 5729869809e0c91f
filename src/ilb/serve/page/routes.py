"""The addresses of the page. It reads the store by a connection that can't write, and asks only for dry runs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from fastapi.routing import APIRoute
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.concurrency import run_in_threadpool

from ilb.serve.deciding import Decide
from ilb.serve.explained import EXPLAINED
from ilb.serve.keys import Keys, Role
from ilb.serve.office import CONTROLS, id_of
from ilb.serve.page import overview
from ilb.serve.page.digest import Digests, colours_of, is_pending
from ilb.serve.page.drawing import Row, intervals, number
from ilb.serve.page.portraits import line_of, portrait_of
from ilb.serve.page.sessions import COOKIE, LASTS, Sessions
from ilb.serve.page.trying import MOST_BOXES, context_of, fields_of, forbidden_of
from ilb.serve.problems import ProblemError, cannot_store, unknown_decision, unknown_person
from ilb.serve.service import Service
from ilb.serve.status import Health
from ilb.serve.store.store import AbstractStore, StoreUnavailableError
from ilb.serve.stories import story_of_decision

PEOPLE = 25
DECISIONS = 50
HERE = Path(__file__).parent
STATIC = {"page.css": "text/css; charset=utf-8", "icon.svg": "image/svg+xml"}


class Pages:
    """All that the pages share."""

    def __init__(
        self, service: Service, reader: AbstractStore, health: Health, keys: Keys | None, label: Callable[[str], str]
    ) -> None:
        self.service, self.reader, self.health, self.keys, self.label = service, reader, health, keys, label
        self.digests = Digests(service, reader)
        self.sessions = Sessions()


class PageRoute(APIRoute):
    """A route whose refusals are pages, too."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = APIRoute.get_route_handler(self)

        async def with_words(request: Request) -> Response:
            try:
                return await handle(request)
            except ProblemError as problem:
                return await _refusal(request, problem)
            except StoreUnavailableError as error:
                return await _refusal(request, cannot_store(str(error)))

        return with_words


pages = APIRouter(route_class=PageRoute, include_in_schema=False)


@pages.get("/")
async def start(request: Request) -> Response:
    role = _role(request)
    if role is None:
        return RedirectResponse("/sign-in", 303)
    if role is Role.DECIDE:
        return RedirectResponse("/try", 303)
    shared = _shared(request)
    digest = await run_in_threadpool(shared.digests.now)
    told = await run_in_threadpool(overview.told_of, digest, shared.service)
    return await _show(request, "overview.html", at="/", told=told)


@pages.get("/people")
async def people(request: Request, after: str = "", label: str = "") -> Response:
    shared = _enter(request, Role.READ)
    after, label = (CONTROLS.sub("", typed.strip())[:200] for typed in (after, label))
    lines, more = await run_in_threadpool(_people, shared, after, label)
    return await _show(request, "people.html", at="/people", lines=lines, more=more, label=label, after=after)


@pages.get("/people/{person}")
async def person(request: Request, person: str) -> Response:
    shared = _enter(request, Role.READ)
    if CONTROLS.search(person):
        raise unknown_person()
    portrait = await run_in_threadpool(portrait_of, shared.reader, person, shared.service.names.all)
    return await _show(request, "person.html", at="/people", portrait=portrait, shown=DECISIONS)


@pages.get("/decisions")
async def decisions(request: Request, only: str = "") -> Response:
    shared = _enter(request, Role.READ)
    digest = await run_in_threadpool(shared.digests.now)
    kinds: dict[str, Callable[[Any], bool]] = {
        "pending": is_pending,
        "fallback": lambda story: story["decision"]["fallback"] is not None,
        "voided": lambda story: story["voided"] is not None,
        "corrected": lambda story: story["corrections"] > 0,
    }
    chosen = [story for story in digest.stories if only not in kinds or kinds[only](story)]
    if only == "pending":
        chosen = chosen[::-1]  # who has waited longest comes first
    return await _show(
        request, "decisions.html", at="/decisions", stories=chosen[:DECISIONS], only=only, found=len(chosen),
        window=len(digest.stories), kinds=list(kinds),
    )  # fmt: skip


@pages.get("/decisions/{decision}")
async def decision(request: Request, decision: str) -> Response:
    shared = _enter(request, Role.READ)
    about = (await run_in_threadpool(shared.reader.about, [id_of(decision)])).get(decision, [])
    if not about:
        raise unknown_decision()
    story = story_of_decision(about)
    ruled_out = _ruled_out(story["request"], story["decision"])
    figure = _expected(story["decision"], shared, ruled_out)
    surprise = shared.digests.surprise(story)
    return await _show(
        request, "decision.html", at="/decisions", story=story, events=about, figure=figure, surprise=surprise,
        ruled_out=ruled_out,
    )  # fmt: skip


@pages.get("/try")
async def try_it(request: Request) -> Response:
    _enter(request, Role.DECIDE)
    return await _try(request, {}, [])


@pages.post("/try")
async def tried(request: Request) -> Response:
    shared = _enter(request, Role.DECIDE)
    form = await _form(request)
    typed, ticked = {name: values[-1] for name, values in form.items()}, form.get("forbidden", [])
    try:
        answer = json.loads(await _ask(shared, typed, ticked))
    except ProblemError as problem:
        return await _try(request, typed, ticked, refused=problem)
    return await _try(request, typed, ticked, answer=answer)


@pages.get("/sign-in")
async def sign_in_form(request: Request) -> Response:
    return await _show(request, "sign_in.html", at="/sign-in", wrong=False)


@pages.post("/sign-in")
async def sign_in(request: Request) -> Response:
    shared = _shared(request)
    presented = (await _form(request)).get("key", [""])[0].strip()
    role = None if shared.keys is None else shared.keys.role_of(presented)
    if role is None:
        return await _show(request, "sign_in.html", 401, at="/sign-in", wrong=True)
    answer = RedirectResponse("/", 303)
    secure = "https" in (request.url.scheme, request.headers.get("x-forwarded-proto"))
    answer.set_cookie(
        COOKIE, shared.sessions.begin(role), max_age=LASTS, httponly=True, samesite="strict", secure=secure
    )
    return answer


@pages.post("/sign-out")
async def sign_out(request: Request) -> Response:
    _shared(request).sessions.end(request.cookies.get(COOKIE))
    answer = RedirectResponse("/sign-in", 303)
    answer.delete_cookie(COOKIE)
    return answer


@pages.get("/problems")
async def problems(request: Request) -> Response:
    """Explain every kind of problem, to anybody: nothing of it is about this server's people."""
    return await _show(request, "problems.html", at="/problems", explained=EXPLAINED)


@pages.get("/favicon.ico")
@pages.get("/static/{name}")
async def static(name: str = "icon.svg") -> Response:
    if name not in STATIC:
        raise ProblemError(404, "http", "There is no such file.")
    return Response(_file(name), media_type=STATIC[name], headers={"cache-control": "public, max-age=300"})


def _shared(request: Request) -> Pages:
    shared: Pages = request.app.state.pages
    return shared


def _role(request: Request) -> Role | None:
    """The role of the key that came with the request, or of whoever is signed in."""
    role: Role | None = getattr(request.state, "role", None)
    return role or _shared(request).sessions.role_of(request.cookies.get(COOKIE))


def _enter(request: Request, needed: Role) -> Pages:
    role = _role(request)
    if role is None:
        raise ProblemError(401, "key-needed", "Sign in with a key first.")
    if role not in (needed, Role.ADMIN):
        raise ProblemError(403, "role", f"Your key is good for {role}; this page takes one for {needed} or admin.")
    return _shared(request)


async def _form(request: Request) -> dict[str, list[str]]:
    try:
        return parse_qs((await request.body()).decode(), keep_blank_values=True, max_num_fields=5000)
    except ValueError as error:
        raise ProblemError(400, "form", "The form can't be read.") from error


def _people(shared: Pages, after: str, label: str) -> tuple[list[Any], str | None]:
    rows = shared.reader.people(after=label or after, limit=PEOPLE + 1)
    exact = _row_of(shared, label) if label else []
    rows = [*exact, *rows]
    lines = []
    for row in rows[:PEOPLE]:
        try:
            lines.append(line_of(shared.reader, row))
        except ProblemError:
            continue  # erased since the list was read
    return lines, rows[PEOPLE - 1].person if len(rows) > PEOPLE else None


def _row_of(shared: Pages, label: str) -> list[Any]:
    if label not in shared.reader.heads([label]):
        return []
    before = label[:-1] + chr(max(ord(label[-1]) - 1, 0)) if label else ""
    return [row for row in shared.reader.people(after=before, limit=200) if row.person == label]


def _ruled_out(request: dict[str, Any], answer: dict[str, Any]) -> set[str]:
    every = {str(name) for name in answer["expected_reward"] or ()}
    allowed = every if request.get("allowed") is None else {str(name) for name in request["allowed"]}
    return (every - allowed) | {str(name) for name in request.get("forbidden") or ()}


def _expected(answer: dict[str, Any], shared: Pages, ruled_out: set[str]) -> Any:
    expected = answer["expected_reward"]
    if not expected:
        return None
    best = sorted(expected, key=lambda name: -expected[name])[:12]
    chosen = str(answer["action"])
    shown = best if chosen in best or chosen not in expected else [*best[:-1], chosen]
    colours = colours_of(shared.service.names.all, shown)
    rows = [
        Row(
            name,
            "other" if name in ruled_out else colours.get(name, "other"),
            expected[name],
            (answer["reward_std"] or {}).get(name) or 0.0,
            name == chosen,
        )
        for name in shown
    ]
    said = "; ".join(f"{row.name} {number(row.mean)} ± {number(row.std, 2)}" for row in rows)
    return intervals("Expected reward of each action", f"With one and two standard deviations: {said}.", rows)


async def _ask(shared: Pages, typed: dict[str, str], ticked: list[str]) -> str:
    service = shared.service
    served = service.engine.served
    if served is None:
        raise ProblemError(409, "no-model", "No model is loaded, so there is nothing to try.")
    label = CONTROLS.sub("", typed.get("person", "")).strip()[:200] or "somebody new"
    asked = {"context": context_of(served, typed), "forbidden": forbidden_of(service.names, ticked)}
    answer = await asyncio.wrap_future(service.submit(Decide(shared.label(label), "", asked, dry=True)))
    return answer.text


async def _try(request: Request, typed: dict[str, str], ticked: list[str], **given: Any) -> Response:
    shared = _shared(request)
    served = shared.service.engine.served
    answer = given.get("answer")
    actions = [str(name) for name in shared.service.names.all]
    shown = {
        "fields": [] if served is None else fields_of(served, typed),
        "person": typed.get("person", ""),
        "actions": actions if len(actions) <= MOST_BOXES else [],
        "ticked": ticked,
        "answer": answer,
        "refused": given.get("refused"),
        "figure": None if answer is None else _expected(answer, shared, set(ticked)),
        "ruled_out": ticked,
        "has_model": served is not None,
    }
    return await _show(request, "try.html", 422 if given.get("refused") else 200, at="/try", **shown)


async def _refusal(request: Request, problem: ProblemError) -> Response:
    if problem.status == 401:
        return RedirectResponse("/sign-in", 303)
    return await _show(request, "problem.html", problem.status, at="", problem=problem)


async def _show(request: Request, template: str, status: int = 200, **given: Any) -> Response:
    shared, role = _shared(request), _role(request)
    report = await run_in_threadpool(shared.health.report) if role is not None else None
    text = await run_in_threadpool(
        lambda: (
            _environment()
            .get_template(template)
            .render(
                report=report,
                model=shared.service.describe() if role is not None else None,
                may_read=role in (Role.READ, Role.ADMIN),
                may_decide=role in (Role.DECIDE, Role.ADMIN),
                signed_in=role is not None and shared.keys is not None,
                now=datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC"),
                **given,
            )
        )
    )
    return HTMLResponse(text, status)


@cache
def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["number"] = number
    made.filters["part"] = lambda text: quote(str(text), safe="")
    made.filters["moment"] = lambda text: str(text)[:16].replace("T", " ")
    return made


@cache
def _file(name: str) -> bytes:
    return (HERE / "static" / name).read_bytes()
