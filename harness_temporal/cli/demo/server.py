"""The Temporal dev server of the demo, and a client of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from temporalio.client import Client
from temporalio.service import RPCError

from harness_temporal.cli.demo.errors import DemoError
from harness_temporal.cli.demo.files import DemoFiles
from harness_temporal.temporal import HarnessPlugin
from harness_temporal.temporal.dev_server import DevServer, dev_server

NAMESPACE = 'default'
_START_TIME_LIMIT = 30.0
_POLL_INTERVAL = 0.1


@dataclass(frozen=True)
class DemoServer:
    """A server that answers. Its runs are in memory and end with it."""

    server: DevServer
    client: Client

    def ui_of(self, workflow_id: str, run_id: str) -> str:
        """Return the address of a workflow run in the web UI; its timeline shows best what was attempted again."""
        return f'{self.server.ui}/namespaces/{NAMESPACE}/workflows/{workflow_id}/{run_id}/timeline'


@asynccontextmanager
async def demo_server(files: DemoFiles) -> AsyncGenerator[DemoServer]:
    """Run a server with its web UI on free ports.

    Raises:
        ConfigurationError: There is no `temporal` binary.
        HarnessError: The server does not start.
    """
    with dev_server(ui=True, log=files.log('server')) as server:
        yield DemoServer(server, await _connect(server))


async def _connect(server: DevServer) -> Client:
    try:
        async with asyncio.timeout(_START_TIME_LIMIT):
            while True:
                server.check()
                try:
                    client = await Client.connect(server.address, namespace=NAMESPACE, plugins=[HarnessPlugin()])
                    # The server answers a moment before it knows its namespace.
                    await client.count_workflows()
                except (RuntimeError, RPCError):
                    await asyncio.sleep(_POLL_INTERVAL)
                else:
                    return client
    except TimeoutError:
        raise DemoError(
            f'The Temporal server did not answer on {server.address} in {_START_TIME_LIMIT:.0f} s.'
        ) from None
