"""Checks of Temporal."""

from __future__ import annotations

from datetime import timedelta

from temporalio.api.enums.v1 import IndexedValueType
from temporalio.client import Client

from harness_temporal.cli.connecting import Place
from harness_temporal.cli.doctor.checks import Found
from harness_temporal.hosting.connection import check_namespace, connect
from harness_temporal.hosting.namespace import missing_attributes
from harness_temporal.hosting.pollers import check_polled
from harness_temporal.hosting.settings import CallerSettings, TemporalSettings

_KINDS = {
    IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD: 'Keyword',
    IndexedValueType.INDEXED_VALUE_TYPE_BOOL: 'Bool',
}
_ANSWER = timedelta(seconds=5)


class TemporalChecks:
    """One connection, and what is asked over it."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._client: Client | None = None

    async def server(self) -> Found:
        """Whether it answers."""
        settings = TemporalSettings.load(address=self._place.address, namespace=self._place.namespace)
        client = await connect(settings)
        await client.service_client.check_health(timeout=_ANSWER)
        self._client = client
        return Found('ok', f'{settings.address} answers, {"with" if settings.uses_tls else "without"} TLS.')

    async def namespace(self) -> Found:
        """Whether it is there, and ours."""
        if self._client is None:
            return _UNREACHED
        await check_namespace(self._client)
        return Found('ok', f'{self._client.namespace} is there.')

    async def search_attributes(self) -> Found:
        """Whether workflows can be found by them."""
        if self._client is None:
            return _UNREACHED
        missing = await missing_attributes(self._client)
        if not missing:
            return Found('ok', 'All are there.')
        commands = [
            f'temporal operator search-attribute create --namespace {self._client.namespace} --name {name} '
            f'--type {_KINDS[kind]}'
            for name, kind in missing.items()
        ]
        return Found('failed', 'Make them (on Temporal Cloud in its console):\n' + '\n'.join(commands))

    async def task_queue(self) -> Found:
        """Whether a worker asks for its work."""
        if self._client is None:
            return _UNREACHED
        task_queue = CallerSettings.load(task_queue=self._place.task_queue).task_queue
        found = await check_polled(self._client, task_queue)
        return Found('ok', f'{task_queue} has {len(found)} workers: {", ".join(found)}.')


_UNREACHED = Found('skipped', 'Temporal was not reached.')
