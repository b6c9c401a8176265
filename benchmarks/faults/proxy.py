"""A TCP proxy in front of one server, which delays and cuts what goes through it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

_CHUNK = 1 << 16


@dataclass
class Proxy:
    """Passes connections on until it is told otherwise."""

    host: str
    upstream: int
    port: int = 0
    _delay: float = 0.0
    _open: asyncio.Event = field(default_factory=asyncio.Event)
    _refusing: bool = False
    _writers: set[asyncio.StreamWriter] = field(default_factory=set[asyncio.StreamWriter])

    @property
    def address(self) -> str:
        return f'{self.host}:{self.port}'

    async def delay(self, seconds: float, *, lasting: float) -> None:
        """Let every piece of data take so much longer, for a while."""
        self._delay = seconds
        await asyncio.sleep(lasting)
        self._delay = 0.0

    async def hold(self, *, lasting: float) -> None:
        """Let nothing through for a while. Connections stay."""
        self._open.clear()
        await asyncio.sleep(lasting)
        self._open.set()

    async def cut(self, *, lasting: float) -> None:
        """Break all connections, and refuse new ones for a while."""
        self._refusing = True
        for writer in list(self._writers):
            writer.transport.abort()
        await asyncio.sleep(lasting)
        self._refusing = False

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        upstream: asyncio.StreamWriter | None = None
        try:
            if self._refusing:
                return
            upstream_reader, upstream = await asyncio.open_connection(self.host, self.upstream)
            self._writers.add(upstream)
            await asyncio.gather(self._pass(reader, upstream), self._pass(upstream_reader, writer))
        except OSError:
            pass  # Either side went away, which the other is told by its end.
        finally:
            for end in (writer, upstream):
                if end is not None:
                    self._writers.discard(end)
                    end.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(_CHUNK):
            if self._delay:
                await asyncio.sleep(self._delay)
            await self._open.wait()
            writer.write(data)
            await writer.drain()
        with suppress(OSError):
            writer.write_eof()


@asynccontextmanager
async def proxy(host: str, upstream: int) -> AsyncGenerator[Proxy]:
    """Run a proxy in front of a server of this machine."""
    made = Proxy(host, upstream)
    made._open.set()  # pyright: ignore[reportPrivateUsage]
    server = await asyncio.start_server(made._serve, host, 0)  # pyright: ignore[reportPrivateUsage]
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        for writer in list(made._writers):  # pyright: ignore[reportPrivateUsage]
            writer.transport.abort()
        server.close()
