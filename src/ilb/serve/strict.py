"""Requests as they are read here: JSON without NaN and Infinity, and of bearable depth."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute

DEEPEST = 20
"""Nesting of a body; the deepest that is asked for is 3."""


def read_strictly(body: bytes) -> Any:
    """Read JSON as the standard has it.

    >>> read_strictly(b'{"a": 1}')
    {'a': 1}
    """
    try:
        value = json.loads(body, parse_constant=_refuse)
    except RecursionError:
        value = None
        deep = True
    else:
        deep = _depth(value) > DEEPEST
    if deep:
        raise json.JSONDecodeError(f"nested more than {DEEPEST} levels deep", "", 0)
    return value


def _refuse(name: str) -> None:
    raise json.JSONDecodeError(f"{name} is no number in JSON; send null for what is missing", "", 0)


def _depth(value: Any) -> int:
    level, here = 0, [value]
    while here and level <= DEEPEST:
        level += 1
        below: list[Any] = []
        for one in here:
            if isinstance(one, dict):
                below += one.values()
            elif isinstance(one, list):
                below += one
        here = below
    return level


class StrictRequest(Request):
    """A request whose JSON is read strictly."""

    async def json(self) -> Any:
        return read_strictly(await self.body())


class StrictRoute(APIRoute):
    """A route whose requests are read strictly."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = APIRoute.get_route_handler(self)

        async def strictly(request: Request) -> Response:
            return await handle(StrictRequest(request.scope, request.receive))

        return strictly
