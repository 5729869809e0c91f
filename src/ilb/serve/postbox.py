"""Postbox: brings answers from the thread of the service to who awaits them, all of a turn in one step.

Waking the event loop once for each answer would let the two threads take turns for each, which costs more than writing
the answers.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any

from ilb.serve.operations import Answer

Letter = tuple["asyncio.Future[Answer]", "Future[Answer]"]


class Postbox:
    """Letters lie here until `empty` is called, at the end of each turn, by the thread that put them in."""

    def __init__(self) -> None:
        self._letters: list[Letter] = []

    async def answer(self, waiting: Future[Answer]) -> Answer:
        """Await the answer of an operation, or raise what it was refused with."""
        arrived: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        waiting.add_done_callback(partial(self._put, arrived))
        if waiting.done():  # its turn may be over, so that nobody empties the box for it
            arrived.cancel()
            return waiting.result()
        return await arrived

    def empty(self) -> None:
        """Hand out all that is here."""
        letters, self._letters = self._letters, []
        by_loop: dict[Any, list[Letter]] = {}
        for letter in letters:
            by_loop.setdefault(letter[0].get_loop(), []).append(letter)
        for loop, some in by_loop.items():
            with suppress(RuntimeError):  # the loop has ended, and with it whoever waited
                loop.call_soon_threadsafe(_hand_out, some)

    def _put(self, arrived: asyncio.Future[Answer], waiting: Future[Answer]) -> None:
        self._letters.append((arrived, waiting))


def _hand_out(letters: list[Letter]) -> None:
    for arrived, waiting in letters:
        if arrived.done():  # nobody waits for it any more
            continue
        problem = waiting.exception()
        if problem is None:
            arrived.set_result(waiting.result())
        else:
            arrived.set_exception(problem)
