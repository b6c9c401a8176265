"""What this package relies on in its dependencies beyond their documented API; a failure says what an upgrade broke."""

from __future__ import annotations

import dataclasses

from pydantic import TypeAdapter
from pydantic_ai.capabilities.abstract import leaf_capabilities
from pydantic_ai.durable_exec import CallToolResult
from pydantic_ai.durable_exec.temporal import TemporalDurability
from temporalio import activity, workflow

from harness_temporal import HarnessDurability, StepPersistence
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


def test_leaf_capabilities_finds_ours_and_the_order_keeps_durability_innermost() -> None:
    leaves = leaf_capabilities(defined_agent.agent.root_capability)
    kinds = [type(leaf) for leaf in leaves if isinstance(leaf, StepPersistence | TemporalDurability)]
    assert kinds == [StepPersistence, HarnessDurability]


def test_a_workflow_knows_its_original_execution() -> None:
    """`HarnessDurability` takes run ids from it: a reset keeps it."""
    assert 'original_execution_run_id' in {field.name for field in dataclasses.fields(workflow.Info)}
