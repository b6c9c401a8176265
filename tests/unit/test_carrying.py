"""What travels with a tool call's result is recorded with it, and changes nothing of it."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_ai.durable_exec import CallToolResult
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, ModelRetry, ToolFailed
from pydantic_ai.messages import BinaryContent, ImageUrl, ToolReturn
from pydantic_core import to_json

from harness_temporal.errors import StateError
from harness_temporal.records import ToolOutcome
from harness_temporal.step_persistence import outcomes
from harness_temporal.step_persistence.carrying import CARRIED_KEY

WRITES = [{'namespace': 'acme', 'version': '1', 'data': '{"value":1}'}]
RESULTS = TypeAdapter[Any](CallToolResult)
LOOK_ALIKE = {CARRIED_KEY: {'version': 1, 'state_writes': WRITES, 'metadata': None}}


class Person(BaseModel):
    name: str


@pytest.mark.parametrize('writes', [[], WRITES], ids=['without-writes', 'with-writes'])
@pytest.mark.parametrize(
    'value',
    [
        pytest.param(None, id='none'),
        pytest.param({'a': [1, None, 10**30]}, id='json'),
        pytest.param({'kind': 'tool-return', 'return_value': 1}, id='claims-to-be-a-return'),
        pytest.param({'kind': 'image-url', 'url': 'x', 'own': 1}, id='claims-to-be-a-file'),
        pytest.param([ImageUrl('https://cdn.test/a.png'), {'deep': ImageUrl('https://cdn.test/b.png')}], id='files'),
        pytest.param(BinaryContent(b'\x00\xff', media_type='application/x'), id='bytes'),
        pytest.param(Person(name='Ada'), id='model'),
        pytest.param(
            ToolReturn(Person(name='Ada'), content=['x'], metadata={'b': b'x'}, tools=['y']), id='tool-return'
        ),
        pytest.param(ToolReturn(1, metadata=LOOK_ALIKE), id='look-alike'),
        pytest.param(ToolReturn(1, metadata={CARRIED_KEY: None}), id='other-look-alike'),
    ],
)
def test_a_value_is_recorded_as_without(value: Any, writes: list[dict[str, str]]) -> None:
    kind = 'tool_content_result' if isinstance(value, dict) and value.get('kind') == 'tool-return' else 'tool_return'
    given = outcomes.result(kind, result=None if kind == 'tool_return' else {})
    given.result = value
    ended = outcomes.ended_with_result(outcomes.with_state_writes(given, writes))
    assert (ended.outcome, ended.error) == ('returned', None)
    assert ended.value is not None
    replayed, expected = outcomes.replay(ended.value), outcomes.load_result(RESULTS.dump_json(given)).result
    assert type(replayed) is type(expected)
    assert replayed == expected
    assert list(outcomes.state_writes(ended.value)) == writes


@pytest.mark.parametrize(
    ('given', 'outcome', 'error', 'raised'),
    [
        (outcomes.result('model_retry', message='again'), 'retry', 'again', ModelRetry('again')),
        (outcomes.result('tool_failed', message='no'), 'failed', 'no', ToolFailed('no')),
        (outcomes.result('run_cancelled', message='over'), 'failed', 'over', ToolFailed('over')),
        (
            outcomes.result('approval_required', metadata={'a': 1}),
            'approval_required',
            None,
            ApprovalRequired({'a': 1}),
        ),
        (outcomes.result('call_deferred', metadata=None), 'deferred', None, CallDeferred()),
    ],
    ids=['retry', 'failed', 'cancelled', 'approval', 'deferred'],
)
@pytest.mark.parametrize('writes', [[], WRITES], ids=['without-writes', 'with-writes'])
def test_a_signal_is_recorded_as_without(
    given: Any, outcome: ToolOutcome, error: str | None, raised: Exception, writes: list[dict[str, str]]
) -> None:
    ended = outcomes.ended_with_result(outcomes.with_state_writes(given, writes))
    assert (ended.outcome, ended.error) == (outcome, error)
    assert ended.value is not None
    with pytest.raises(type(raised)) as caught:
        outcomes.replay(ended.value)
    assert vars(caught.value) == vars(raised)
    assert list(outcomes.state_writes(ended.value)) == writes


@pytest.mark.parametrize('writes', [[], WRITES], ids=['without-writes', 'with-writes'])
def test_a_validation_error_in_a_tool_is_a_retry(writes: list[dict[str, str]]) -> None:
    errors = [{'type': 'missing', 'loc': ['name'], 'msg': 'Field required', 'input': {}}]
    given = outcomes.result('validation_error', title='Person', errors=errors)
    ended = outcomes.ended_with_result(outcomes.with_state_writes(given, writes))
    assert ended.outcome == 'retry'
    assert ended.value is not None
    with pytest.raises(ModelRetry, match='Field required') as caught:
        outcomes.replay(ended.value)
    assert isinstance(caught.value.__cause__, ValidationError)


def test_nothing_changes_where_nothing_is_carried() -> None:
    given = outcomes.result('tool_return', result=ToolReturn(1, metadata={'a': 1}))
    assert outcomes.with_state_writes(given, []) is given


def test_what_a_later_release_carries_is_refused() -> None:
    later = outcomes.result('tool_return', result=ToolReturn(1, metadata={CARRIED_KEY: {'version': 2}}))
    with pytest.raises(StateError) as caught:
        outcomes.replay(to_json(later))
    assert caught.value.code == 'carrier_version_unsupported'
