"""A namespace with the search attributes by which workflows are found."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from datetime import timedelta
from typing import Final

from google.protobuf.duration_pb2 import Duration
from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest, RegisterNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from harness_temporal.errors import ConfigurationError
from harness_temporal.temporal.visibility import attributes

SEARCH_ATTRIBUTES: Final = {
    attributes.AGENT.name: IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD,
    attributes.CONVERSATION.name: IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD,
    attributes.PARENT_RUN.name: IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD,
    attributes.STATUS.name: IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD,
    attributes.WAITING_FOR_APPROVAL.name: IndexedValueType.INDEXED_VALUE_TYPE_BOOL,
}
"""By what workflows can be found. A name, once made, keeps its type."""
DEFAULT_RETENTION: Final = timedelta(days=7)
READY_TIMEOUT: Final = timedelta(minutes=2)
"""How long the servers may take to hear of a new namespace or attribute from each other."""
_PAUSE: Final = 0.5
logger = logging.getLogger(__name__)


async def missing_attributes(client: Client) -> dict[str, IndexedValueType.ValueType]:
    """Return the search attributes that the client's namespace lacks.

    Raises:
        ConfigurationError: An attribute is there with another type.
    """
    present = await _attributes(client)
    for name, kind in SEARCH_ATTRIBUTES.items():
        if present.get(name, kind) != kind:
            raise ConfigurationError(
                f'The search attribute {name!r} is there as {IndexedValueType.Name(present[name])}, not as '
                f'{IndexedValueType.Name(kind)}. Remove it, or use another namespace.'
            )
    return {name: kind for name, kind in SEARCH_ATTRIBUTES.items() if name not in present}


async def has_attributes(client: Client) -> bool:
    """Whether the client's namespace is known to have the search attributes: not everybody may ask for them."""
    try:
        present = await _attributes(client)
    except RPCError as error:
        if error.status not in (RPCStatusCode.PERMISSION_DENIED, RPCStatusCode.UNIMPLEMENTED):
            raise
        return False
    return SEARCH_ATTRIBUTES.items() <= present.items()


async def set_up(client: Client, *, retention: timedelta = DEFAULT_RETENTION) -> None:
    """Make what is not there yet, and wait until it can be used.

    Args:
        client: Its namespace is the one that is made.
        retention: How long closed workflows are kept, if the namespace is made.

    Raises:
        ConfigurationError: An attribute is there with another type, or what was made cannot be used in time.
        RPCError: The server refuses. On Temporal Cloud namespaces and attributes are made in its own console.
    """
    await _make_namespace(client, retention)
    missing = await missing_attributes(client)
    if missing:
        request = AddSearchAttributesRequest(namespace=client.namespace, search_attributes=missing)
        with _or_already_there():
            await client.operator_service.add_search_attributes(request)
    await _until(lambda: has_attributes(client), f'The search attributes of the namespace {client.namespace!r}')
    logger.info('namespace %s has its search attributes; %d are new', client.namespace, len(missing))


async def _make_namespace(client: Client, retention: timedelta) -> None:
    if await _has_namespace(client):
        return
    duration = Duration()
    duration.FromTimedelta(retention)
    request = RegisterNamespaceRequest(namespace=client.namespace, workflow_execution_retention_period=duration)
    with _or_already_there():
        await client.workflow_service.register_namespace(request)
    await _until(lambda: _has_namespace(client), f'The namespace {client.namespace!r}')
    logger.info('namespace %s is there', client.namespace)


@contextmanager
def _or_already_there() -> Generator[None]:
    """Let it be if somebody else makes the same at this moment."""
    try:
        yield
    except RPCError as error:
        if error.status != RPCStatusCode.ALREADY_EXISTS:
            raise


async def _has_namespace(client: Client) -> bool:
    try:
        await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace=client.namespace))
        await _attributes(client)
    except RPCError as error:
        if error.status != RPCStatusCode.NOT_FOUND:
            raise
        return False
    return True


async def _attributes(client: Client) -> dict[str, IndexedValueType.ValueType]:
    request = ListSearchAttributesRequest(namespace=client.namespace)
    return dict((await client.operator_service.list_search_attributes(request)).custom_attributes)


async def _until(condition: Callable[[], Awaitable[bool]], what: str) -> None:
    try:
        async with asyncio.timeout(READY_TIMEOUT.total_seconds()):
            while not await condition():  # noqa: ASYNC110  # another machine's state
                await asyncio.sleep(_PAUSE)
    except TimeoutError as error:
        raise ConfigurationError(f'{what} cannot be used after {READY_TIMEOUT.total_seconds():.0f} s.') from error
