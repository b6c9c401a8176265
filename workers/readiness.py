"""Whether a worker does its work: it asks for tasks, and Temporal and its stores answer."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from functools import partial
from http import HTTPStatus
from typing import Final

from temporalio.client import Client

from harness_temporal.conversations import ConversationStore
from harness_temporal.hosting.answering import ask_conversation_store, ask_media_store, ask_store
from harness_temporal.hosting.pollers import pollers
from harness_temporal.media import MediaStore
from harness_temporal.stores import StepStore
from workers.http import Answer

CHECK_TIMEOUT: Final = 2.0
"""Seconds that Temporal or a store may take to answer. A probe should give more."""
FRESH_SECONDS: Final = 5.0
"""How long an answer stands. However often a probe asks, the stores are asked no more than that."""
_logger = logging.getLogger(__name__)


class Readiness:
    """Answers `/readyz`.

    Args:
        client: The worker's.
        task_queue: The worker's.
        stores: What has to answer: the stores of its agents' runs.
        media_stores: What has to answer: the stores of large parts and of payloads.
        conversations: What has to answer, if there is one: the store of the conversations.
    """

    def __init__(
        self,
        client: Client,
        task_queue: str,
        stores: Sequence[StepStore],
        media_stores: Sequence[MediaStore],
        conversations: ConversationStore | None,
    ) -> None:
        self._client = client
        self._task_queue = task_queue
        self._polls = self._stopping = False
        self._checks: dict[str, Callable[[], Awaitable[object]]] = {'temporal': self._check_temporal}
        for store in stores:
            self._add(store, partial(ask_store, store))
        for media_store in media_stores:
            self._add(media_store, partial(ask_media_store, media_store))
        if conversations is not None:
            self._add(conversations, partial(ask_conversation_store, conversations))
        self._failures: dict[str, str] = {}
        self._checked_at: float | None = None
        self._lock = asyncio.Lock()

    def _add(self, store: object, check: Callable[[], Awaitable[object]]) -> None:
        name = type(store).__name__
        number = sum(other.partition(' ')[0] == name for other in self._checks)
        self._checks[f'{name} {number + 1}' if number else name] = check

    def stop(self) -> None:
        """Be ready no more: the worker ends."""
        self._stopping = True

    async def failures(self) -> dict[str, str]:
        """Return what does not work, with the kind of its error; nothing if the worker is ready."""
        if self._stopping:
            return {'worker': 'it is stopping'}
        async with self._lock:
            if self._checked_at is None or time.monotonic() >= self._checked_at + FRESH_SECONDS:
                results = await asyncio.gather(*(self._run(*check) for check in self._checks.items()))
                self._failures = {name: error for name, error in results if error is not None}
                # A failure does not stand: who waits for readiness wants it at once.
                self._checked_at = time.monotonic() if not self._failures else None
        return self._failures

    async def answer(self) -> Answer:
        """Answer a probe."""
        failures = await self.failures()
        body = json.dumps({'ready': not failures, 'failures': failures}).encode()
        return Answer(body, HTTPStatus.OK if not failures else HTTPStatus.SERVICE_UNAVAILABLE)

    async def _run(self, name: str, check: Callable[[], Awaitable[object]]) -> tuple[str, str | None]:
        try:
            async with asyncio.timeout(CHECK_TIMEOUT):
                await check()
        except Exception as error:  # noqa: BLE001  # whatever it is, a probe wants an answer
            # The message may have addresses in it, which are for the log and not for whoever asks.
            _logger.warning('%s does not answer: %s', name, error or type(error).__name__)
            return name, type(error).__name__
        return name, None

    async def _check_temporal(self) -> None:
        timeout = timedelta(seconds=CHECK_TIMEOUT)
        if self._polls:
            await self._client.service_client.check_health(timeout=timeout)
            return
        # Once: the server lists all who ask for work, which is much where there are many workers.
        if self._client.identity not in await pollers(self._client, self._task_queue, timeout=timeout):
            raise NotPollingError('the worker does not ask for work yet')
        self._polls = True


class NotPollingError(Exception):
    """Temporal has not heard of the worker."""
