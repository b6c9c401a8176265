"""How a process gets to Temporal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client, Interceptor, Plugin
from temporalio.runtime import Runtime
from temporalio.service import RPCError, RPCStatusCode, TLSConfig

from harness_temporal.errors import ConfigurationError
from harness_temporal.hosting.settings import TemporalSettings


async def connect(
    settings: TemporalSettings,
    *,
    plugins: Sequence[Plugin] = (),
    interceptors: Sequence[Interceptor] = (),
    runtime: Runtime | None = None,
) -> Client:
    """Connect as the settings say, with the SDK's own runtime unless another is given.

    Raises:
        ConfigurationError: A file of a certificate cannot be read, or nobody answers; the message says what to check.
    """
    tls = _tls(settings) if settings.uses_tls else False
    try:
        return await Client.connect(
            settings.address,
            namespace=settings.namespace,
            api_key=settings.api_key.get_secret_value() if settings.api_key is not None else None,
            tls=tls,
            plugins=plugins,
            interceptors=interceptors,
            runtime=runtime,
        )
    except RuntimeError as error:
        how = 'with TLS' if tls else 'without TLS (TEMPORAL_TLS=on turns it on)'
        raise ConfigurationError(
            f'Temporal cannot be reached at TEMPORAL_ADDRESS={settings.address}, {how}: {error}'
        ) from error


async def check_namespace(client: Client) -> None:
    """Make sure that the client's namespace is there, and is ours to use.

    Raises:
        ConfigurationError: It is not.
    """
    try:
        await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace=client.namespace))
    except RPCError as error:
        reasons = {
            RPCStatusCode.NOT_FOUND: 'is not there; `python -m workers.set_up` makes it',
            RPCStatusCode.PERMISSION_DENIED: 'is not ours to use: check TEMPORAL_API_KEY, or the certificate',
            RPCStatusCode.UNAUTHENTICATED: 'needs TEMPORAL_API_KEY, or a certificate',
        }
        if error.status not in reasons:
            raise
        raise ConfigurationError(f'TEMPORAL_NAMESPACE={client.namespace} {reasons[error.status]}.') from error


def _tls(settings: TemporalSettings) -> TLSConfig:
    return TLSConfig(
        server_root_ca_cert=_read('tls_server_ca_cert_path', settings.tls_server_ca_cert_path),
        domain=settings.tls_server_name,
        client_cert=_read('tls_client_cert_path', settings.tls_client_cert_path),
        client_private_key=_read('tls_client_key_path', settings.tls_client_key_path),
    )


def _read(field: str, path: Path | None) -> bytes | None:
    try:
        return path.read_bytes() if path is not None else None
    except OSError as error:
        raise ConfigurationError(f'{TemporalSettings.variable(field)} cannot be read: {error}') from error
