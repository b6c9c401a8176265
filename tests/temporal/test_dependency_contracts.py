"""What this package relies on in its dependencies beyond their documented API; a failure says what an upgrade broke."""

from __future__ import annotations

import dataclasses
import gc
import sys
from datetime import date
from random import Random
from typing import Any

import pytest
from pydantic import TypeAdapter
from pydantic_ai.capabilities.abstract import leaf_capabilities
from pydantic_ai.durable_exec import CallToolResult
from pydantic_ai.durable_exec._toolset import unwrap_tool_call_result
from pydantic_ai.durable_exec.temporal import TemporalDurability
from pydantic_ai.exceptions import ModelRetry
from pydantic_ai.messages import TextPart
from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import Worker
from temporalio.worker.workflow_sandbox import SandboxMatcher
from temporalio.worker.workflow_sandbox._restrictions import (
    RestrictionContext,
    _RestrictedProxy,  # pyright: ignore[reportPrivateUsage]
)

from harness_temporal import HarnessDurability, StepPersistence, addresses
from harness_temporal.temporal.agent_run_workflow import AgentRunWorkflow
from tests.temporal import defined_agent


def test_names_of_agent_activities() -> None:
    """`temporal.interceptor` tells model requests and tool calls by the ends of their names."""
    durability = HarnessDurability.from_agent(defined_agent.agent)
    assert durability is not None
    names = {activity._Definition.must_from_callable(item).name for item in durability.temporal_activities}
    assert {
        'agent__defined__model_request',
        'agent__defined__model_request_stream',
        'agent__defined__toolset__<agent>__call_tool',
        'agent__defined__capability__step_persistence__start_run',
        'agent__defined__capability__step_persistence__end_run',
        'agent__defined__capability__step_persistence__append_event',
        'agent__defined__capability__step_persistence__save_snapshot',
        'agent__defined__capability__step_persistence__start_tool_effect',
        'agent__defined__capability__step_persistence__finish_tool_effect',
        'agent__defined__capability__step_persistence__registration_identity',
    } <= names


def test_layout_of_lists() -> None:
    """`addresses` reads a list's items from memory; without that, looking for changed messages takes longer."""
    objects = [object(), 'x', None, (), 10**30]
    assert addresses.addresses is addresses._read
    for count in range(len(objects) + 1):
        assert addresses._read(objects[:count]) == addresses._computed(objects[:count])


def test_what_objects_refer_to() -> None:
    """`unchanged` watches attributes, items and values by it."""
    key, value = object(), object()
    assert gc.get_referents([key, value], [key]) in ([key, value, key], [value, key, key])
    assert set(map(id, gc.get_referents({'name': value}))) == {id(value)}
    part = TextPart('x')
    values = list(vars(part).values())
    # Since Python 3.13 an object has its attributes itself, until its `__dict__` is replaced.
    assert all(any(value is found for found in gc.get_referents(part, vars(part))) for value in values)
    part.__dict__ = dict(vars(part))
    assert any(found is vars(part) for found in gc.get_referents(part))


def test_name_of_a_workflow_class() -> None:
    """`cli.worker.workflows` tells by it whether two classes would have the same name on a worker."""
    definition = workflow._Definition.from_class(AgentRunWorkflow)
    assert definition is not None
    assert definition.name == 'AgentRun'
    assert workflow._Definition.from_class(Worker) is None


def test_arguments_of_agent_activities() -> None:
    """`temporal.interceptor` reads these attributes of the first argument of an agent's activities."""
    durability = HarnessDurability.from_agent(defined_agent.agent)
    assert durability is not None
    by_name = {
        activity._Definition.must_from_callable(item).name: item.__annotations__['params']
        for item in durability.temporal_activities
    }

    def fields(name: str) -> set[str]:
        return {field.name for field in dataclasses.fields(by_name[name])}

    assert {'tool_args', 'tool_def', 'serialized_run_context'} <= fields('agent__defined__toolset__<agent>__call_tool')
    assert {'messages', 'serialized_run_context'} <= fields('agent__defined__model_request')
    assert {'messages', 'serialized_run_context'} <= fields('agent__defined__model_request_stream')


def test_tags_of_recorded_tool_results() -> None:
    """`step_persistence.outcomes` makes and reads recorded results by these tags."""
    results = TypeAdapter(CallToolResult)
    for recorded in (
        {'kind': 'tool_return', 'result': 1},
        {'kind': 'tool_content_result', 'result': {'kind': 'tool-return'}},
        {'kind': 'model_retry', 'message': 'x'},
        {'kind': 'tool_failed', 'message': 'x'},
        {'kind': 'run_cancelled', 'message': 'x'},
        {'kind': 'approval_required', 'metadata': None},
        {'kind': 'call_deferred', 'metadata': None},
        {'kind': 'validation_error', 'title': 'x', 'errors': []},
    ):
        assert results.validate_python(recorded).kind == recorded['kind']


def test_names_of_child_workflows_that_run_tools() -> None:
    """`temporal.state_arrival` tells them by the ends of their names."""
    durability = HarnessDurability.from_agent(defined_agent.agent)
    assert durability is not None
    names = {name for _, name in durability.get_durable_operation_backend().child_workflow_toolsets.values()}
    assert names == {'agent__defined__toolset__<agent>__call_tool__child_workflow'}


def test_a_recorded_signal_is_raised_as_what_it_was() -> None:
    """`step_persistence.outcomes` raises recorded signals with it; no public function does."""
    recorded = TypeAdapter(CallToolResult).validate_python({'kind': 'model_retry', 'message': 'again'})
    with pytest.raises(ModelRetry, match='again'):
        unwrap_tool_call_result(recorded)


def test_leaf_capabilities_finds_ours_and_the_order_keeps_durability_innermost() -> None:
    leaves = leaf_capabilities(defined_agent.agent.root_capability)
    kinds = [type(leaf) for leaf in leaves if isinstance(leaf, StepPersistence | TemporalDurability)]
    assert kinds == [StepPersistence, HarnessDurability]


def test_a_workflow_knows_its_original_execution() -> None:
    """`HarnessDurability` takes run ids from it: a reset keeps it."""
    assert 'original_execution_run_id' in {field.name for field in dataclasses.fields(workflow.Info)}


def test_native_checks_look_through_the_proxies_of_the_sandbox() -> None:
    """`temporal.native_checks` relies on it."""
    context, matcher = RestrictionContext(), SandboxMatcher()
    day, random = date(2020, 1, 1), Random()
    proxied_class: Any = _RestrictedProxy('datetime.date', date, context, matcher)
    proxied_object: Any = _RestrictedProxy('random', random, context, matcher)
    assert isinstance(day, proxied_class)
    assert isinstance(day, (int, proxied_class))
    assert not isinstance(1, proxied_class)
    assert isinstance(proxied_class, type)
    assert isinstance(proxied_object, Random)
    assert not isinstance(proxied_object, int)


@workflow.defn
class ChecksTypes:
    @workflow.run
    async def run(self) -> list[bool]:
        return [is_native(vars(sys.modules[name]).get('isinstance', isinstance)) for name in (__name__, 'pydantic_ai')]


@pytest.mark.temporal
async def test_the_sandbox_still_has_a_slow_check_which_pydantic_ai_does_not_use(
    client: Client, task_queue: str
) -> None:
    """Once both are native, `temporal.native_checks` can go."""
    async with Worker(client, task_queue=task_queue, workflows=[ChecksTypes], build_id='tests'):
        native = await client.execute_workflow(ChecksTypes.run, id=f'checks-{task_queue}', task_queue=task_queue)
    assert native == [False, True]


def is_native(check: object) -> bool:
    return type(check) is type(len)
