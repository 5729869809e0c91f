"""Line: operations that wait for their turn, in order, and where their answers go."""

from __future__ import annotations

import queue
import time
from collections import deque
from concurrent.futures import Future
from typing import NamedTuple

from ilb.serve.operations import AbstractOperation, Answer
from ilb.serve.problems import ProblemError, cannot_store

TURN = 64
"""Operations that are carried out in one turn."""

MOST_WAITING = 2000
"""Operations that wait; beyond that, a server is overrun and says so at once."""


class Waiting(NamedTuple):
    """An operation and where its answer goes; `began` is that of its person when it was tried before."""

    operation: AbstractOperation
    answer: Future[Answer]
    since: float
    tries: int = 0
    began: str = ""

    def acknowledge(self, answer: Answer) -> None:
        """Answer, if that has not happened yet."""
        if not self.answer.done():
            self.answer.set_result(answer)

    def refuse(self, problem: ProblemError) -> None:
        """Answer with a problem, if there was no answer yet."""
        if not self.answer.done():
            self.answer.set_exception(problem)


class Line:
    """Whoever asks stands at the end; who was put off stands at the front."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Waiting | None] = queue.SimpleQueue()
        self._deferred: deque[Waiting] = deque()
        self._closed = False

    def __len__(self) -> int:
        return self._queue.qsize() + len(self._deferred)

    @property
    def has_deferred(self) -> bool:
        """Whether somebody was put off who has to be heard before the end."""
        return bool(self._deferred)

    def submit(self, operation: AbstractOperation) -> Future[Answer]:
        """Put an operation at the end; its answer comes when it is stored."""
        waiting = Waiting(operation, Future(), time.monotonic())
        if self._closed:
            waiting.refuse(cannot_store("the server is stopping."))
        elif self._queue.qsize() > MOST_WAITING:
            waiting.refuse(
                ProblemError(429, "overrun", "More requests wait than can be answered soon. Try again.", retry_after=1)
            )
        else:
            self._queue.put(waiting)
        return waiting.answer

    def defer(self, waiting: Waiting) -> None:
        """Put an operation off until the next turn."""
        self._deferred.append(waiting)

    def close(self) -> None:
        """Let nobody in any more."""
        self._closed = True
        self._queue.put(None)

    def take(self) -> tuple[list[Waiting], bool]:
        """Take what waits, in order, and say whether it is the last; wait only if nothing does."""
        batch: list[Waiting] = []
        while self._deferred and len(batch) < TURN:
            before = self._deferred.popleft()
            if not before.answer.done():  # it may have been refused since, with its turn
                batch.append(before)
        stop = self._closed and self._queue.empty() and not batch
        while len(batch) < TURN and not stop:
            try:
                one = self._queue.get(block=not batch)
            except queue.Empty:
                break
            if one is None:
                stop = True
            elif one.answer.set_running_or_notify_cancel():  # false: nobody waits for it any more
                batch.append(one)
        return batch, stop
