"""A small HTTP server for probes and metrics, on the worker's own event loop: if that is stuck, nobody answers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, TypeAlias

from harness_temporal.errors import ConfigurationError

REQUEST_TIMEOUT: Final = 5.0
"""Seconds for a request to arrive. A probe sends it at once."""
_LONGEST_HEAD: Final = 16 * 1024
_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Answer:
    """What is answered."""

    body: bytes
    status: HTTPStatus = HTTPStatus.OK
    content_type: str = 'application/json'


Route: TypeAlias = Callable[[], Awaitable[Answer]]


@asynccontextmanager
async def serving_http(address: str, routes: Mapping[str, Route]) -> AsyncGenerator[str]:
    """Answer GET for each of the paths. Yields where, as `http://HOST:PORT`.

    Args:
        address: Host and port; without a host, on all of them.
        routes: What answers, by path.

    Raises:
        ConfigurationError: The address cannot be listened on.
    """
    host, _, port = address.rpartition(':')

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(REQUEST_TIMEOUT):
                head = await reader.readuntil(b'\r\n\r\n')
            writer.write(_encoded(await _answer(head, routes)))
            await writer.drain()
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    try:
        server = await asyncio.start_server(handle, host.strip('[]') or None, int(port), limit=_LONGEST_HEAD)
    except (OSError, OverflowError) as error:
        raise ConfigurationError(
            f'HARNESS_HTTP_ADDRESS is {address!r}, which cannot be listened on: {error}'
        ) from error
    try:
        bound = server.sockets[0].getsockname()
        yield f'http://{host or "127.0.0.1"}:{bound[1]}'
    finally:
        server.close()
        await server.wait_closed()


async def _answer(head: bytes, routes: Mapping[str, Route]) -> Answer:
    method, _, rest = head.partition(b'\r\n')[0].decode('latin-1').partition(' ')
    path = rest.partition(' ')[0].partition('?')[0]
    if path not in routes:
        return Answer(b'{}', HTTPStatus.NOT_FOUND)
    if method != 'GET':
        return Answer(b'{}', HTTPStatus.METHOD_NOT_ALLOWED)
    try:
        return await routes[path]()
    except Exception:
        _logger.exception('%s could not be answered.', path)
        return Answer(b'{}', HTTPStatus.INTERNAL_SERVER_ERROR)


def _encoded(answer: Answer) -> bytes:
    head = (
        f'HTTP/1.1 {answer.status.value} {answer.status.phrase}\r\nContent-Type: {answer.content_type}\r\n'
        f'Content-Length: {len(answer.body)}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n'
    )
    return head.encode('latin-1') + answer.body
