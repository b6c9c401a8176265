from __future__ import annotations

import asyncio
import uuid

import pytest
from temporalio.api.enums.v1 import IndexedValueType
from temporalio.client import Client
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes

from harness_temporal.errors import ConfigurationError
from harness_temporal.hosting.namespace import SEARCH_ATTRIBUTES, set_up
from harness_temporal.temporal.dev_server import DevServer
from tests.temporal.runs import until


@pytest.fixture
async def newcomer(temporal_server: DevServer) -> Client:
    """A client of a namespace that is not there yet."""
    return await Client.connect(temporal_server.address, namespace=f'new-{uuid.uuid4()}')


def test_names_of_search_attributes_are_for_ever() -> None:
    assert {name: IndexedValueType.Name(kind) for name, kind in SEARCH_ATTRIBUTES.items()} == {
        'HarnessAgent': 'INDEXED_VALUE_TYPE_KEYWORD',
        'HarnessConversation': 'INDEXED_VALUE_TYPE_KEYWORD',
        'HarnessParentRun': 'INDEXED_VALUE_TYPE_KEYWORD',
        'HarnessStatus': 'INDEXED_VALUE_TYPE_KEYWORD',
        'HarnessWaitingForApproval': 'INDEXED_VALUE_TYPE_BOOL',
    }


async def test_a_namespace_is_made_once_and_workflows_are_found_by_its_attributes(
    newcomer: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await asyncio.gather(set_up(newcomer), set_up(newcomer))
    await set_up(newcomer)
    agent = SearchAttributePair(SearchAttributeKey.for_keyword('HarnessAgent'), 'librarian')
    await newcomer.start_workflow(
        'AgentRun', id='found', task_queue='none', search_attributes=TypedSearchAttributes([agent])
    )

    async def found() -> bool:
        return [run.id async for run in newcomer.list_workflows("HarnessAgent = 'librarian'")] == ['found']

    await until(found)

    other = dict.fromkeys(SEARCH_ATTRIBUTES, SEARCH_ATTRIBUTES['HarnessAgent'])
    monkeypatch.setattr('harness_temporal.hosting.namespace.SEARCH_ATTRIBUTES', other)
    with pytest.raises(ConfigurationError, match='HarnessWaitingForApproval'):
        await set_up(newcomer)
