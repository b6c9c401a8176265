"""Connect to Temporal, as options and settings say."""

from __future__ import annotations

from dataclasses import dataclass

from temporalio.client import Client

from harness_temporal.hosting.connection import check_namespace, connect
from harness_temporal.hosting.settings import CallerSettings, TemporalSettings
from harness_temporal.temporal import HarnessPlugin


@dataclass(frozen=True)
class Place:
    """Where to run: options that go before the settings."""

    address: str | None = None
    namespace: str | None = None
    task_queue: str | None = None


@dataclass(frozen=True)
class Target:
    """The workers that a command talks to."""

    client: Client
    task_queue: str


async def connected(place: Place) -> Target:
    """Connect to Temporal.

    Raises:
        ConfigurationError: A setting is wrong, nobody answers, or the namespace is not there.
    """
    temporal = TemporalSettings.load(address=place.address, namespace=place.namespace)
    caller = CallerSettings.load(task_queue=place.task_queue)
    plugin = HarnessPlugin(payloads=caller.load_payloads())
    client = await connect(temporal, plugins=[plugin])
    await check_namespace(client)
    return Target(client, caller.task_queue)
