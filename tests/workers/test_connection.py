from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client
from temporalio.runtime import Runtime
from temporalio.service import RPCError, RPCStatusCode, TLSConfig

from harness_temporal.errors import ConfigurationError
from harness_temporal.hosting.connection import check_namespace, connect
from harness_temporal.hosting.settings import TemporalSettings
from harness_temporal.temporal.dev_server import DevServer
from workers.connection import telemetry_runtime


async def connected_with(settings: TemporalSettings, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return what the SDK is told."""
    told: dict[str, Any] = {}

    async def note(address: str, **options: Any) -> None:
        told.update(options, address=address)

    monkeypatch.setattr(Client, 'connect', note)
    await connect(settings, plugins=[], interceptors=[], runtime=Runtime.default())
    return told


async def test_an_api_key_goes_over_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = TemporalSettings(address='cloud:7233', namespace='n', api_key='secret')  # pyright: ignore[reportArgumentType]
    told = await connected_with(settings, monkeypatch)
    assert (told['address'], told['namespace'], told['api_key']) == ('cloud:7233', 'n', 'secret')
    assert told['tls'] == TLSConfig()


async def test_certificates_are_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ('cert', 'key', 'ca'):
        (tmp_path / name).write_text(name)
    settings = TemporalSettings(
        tls_client_cert_path=tmp_path / 'cert',
        tls_client_key_path=tmp_path / 'key',
        tls_server_ca_cert_path=tmp_path / 'ca',
        tls_server_name='temporal',
    )
    assert (await connected_with(settings, monkeypatch))['tls'] == TLSConfig(
        server_root_ca_cert=b'ca', domain='temporal', client_cert=b'cert', client_private_key=b'key'
    )


async def test_without_any_of_it_nothing_is_encrypted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (await connected_with(TemporalSettings(), monkeypatch))['tls'] is False


async def test_a_certificate_that_is_not_there_is_named(tmp_path: Path) -> None:
    settings = TemporalSettings(tls_server_ca_cert_path=tmp_path / 'gone')
    with pytest.raises(ConfigurationError, match='TEMPORAL_TLS_SERVER_CA_CERT_PATH cannot be read'):
        await connect(settings, plugins=[], interceptors=[], runtime=Runtime.default())


async def test_who_does_not_answer_is_named() -> None:
    settings = TemporalSettings(address='127.0.0.1:1')
    with pytest.raises(ConfigurationError, match=r'TEMPORAL_ADDRESS=127\.0\.0\.1:1, without TLS'):
        await connect(settings, plugins=[], interceptors=[], runtime=Runtime.default())


async def test_a_namespace_that_is_not_there_is_named(temporal_server: DevServer) -> None:
    client = await Client.connect(temporal_server.address, namespace='absent')
    with pytest.raises(ConfigurationError, match='TEMPORAL_NAMESPACE=absent is not there'):
        await check_namespace(client)


@pytest.mark.parametrize(
    ('status', 'said'),
    [
        (RPCStatusCode.PERMISSION_DENIED, 'is not ours to use'),
        (RPCStatusCode.UNAUTHENTICATED, 'needs TEMPORAL_API_KEY'),
    ],
)
async def test_a_refusal_is_explained(
    temporal_server: DevServer, monkeypatch: pytest.MonkeyPatch, status: RPCStatusCode, said: str
) -> None:
    client = await Client.connect(temporal_server.address)

    async def refuse(request: object) -> None:
        raise RPCError('no', status, b'')

    monkeypatch.setattr(client.workflow_service, 'describe_namespace', refuse)
    with pytest.raises(ConfigurationError, match=said):
        await check_namespace(client)


def test_an_address_for_metrics_that_is_taken_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(('127.0.0.1', 0))
        taken.listen()
        with pytest.raises(ConfigurationError, match='HARNESS_SDK_METRICS_ADDRESS'):
            telemetry_runtime(f'127.0.0.1:{taken.getsockname()[1]}')
