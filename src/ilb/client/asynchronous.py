"""AsyncClient: the client for programs that await. Calls run in a few threads, so nothing else waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, ParamSpec, TypeVar

from ilb.client.client import Client
from ilb.client.told import Decision, Told

P = ParamSpec("P")
T = TypeVar("T")

AT_ONCE = 32
"""Calls under way at the same time; further ones wait."""


class AsyncClient:
    """As `Client`, with the same parameters, to be awaited."""

    def __init__(self, address: str, **options: Any) -> None:
        self._client = Client(address, **options)
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="ilb-client")

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    @property
    def waiting(self) -> int:
        """How much could not be delivered yet."""
        return self._client.waiting

    async def decide(self, person: str, context: Mapping[str, Any], **given: Any) -> Decision:
        """See `Client.decide`."""
        return await self._run(self._client.decide, person, context, **given)

    async def learn(self, decision: Decision | str, reward: float, **given: Any) -> Told:
        """See `Client.learn`."""
        return await self._run(self._client.learn, decision, reward, **given)

    async def correct(self, decision: Decision | str, reward: float, **given: Any) -> Told:
        """See `Client.correct`."""
        return await self._run(self._client.correct, decision, reward, **given)

    async def void(self, decision: Decision | str, why: str = "not_shown") -> Told:
        """See `Client.void`."""
        return await self._run(self._client.void, decision, why)

    async def observe(self, person: str, context: Mapping[str, Any], **given: Any) -> Told:
        """See `Client.observe`."""
        return await self._run(self._client.observe, person, context, **given)

    async def preview(self, person: str, context: Mapping[str, Any], **given: Any) -> Mapping[str, Any]:
        """See `Client.preview`."""
        return await self._run(self._client.preview, person, context, **given)

    async def status(self) -> Mapping[str, Any]:
        """See `Client.status`."""
        return await self._run(self._client.status)

    async def deliver(self) -> int:
        """See `Client.deliver`."""
        return await self._run(self._client.deliver)

    async def close(self) -> None:
        """Finish what is under way and let go of everything."""
        await asyncio.to_thread(self._threads.shutdown)
        self._client.close()

    async def _run(self, call: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, partial(call, *given, **named))
