"""A long thread costs in proportion to its length (field case 48)."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart, ToolReturnPart

from harness_temporal.state import HarnessState
from harness_temporal.state.candidates import safe_history
from tests.state.support import NOW, call, response, returned, thread, user


def long_history(length: int) -> list[ModelMessage]:
    messages: list[ModelMessage] = []
    for index in range(length // 2):
        messages.append(response(call('plain', f'id{index}', x=index)))
        messages.append(returned(f'plain#{index}', content=f'{index} ' * 10))
    return messages


def calls_made(work: Callable[[], Any]) -> int:
    """Count the Python and C functions that `work` calls: the same on every machine."""
    count = 0

    def profile(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ('call', 'c_call')

    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def round_trip(messages: list[ModelMessage]) -> HarnessState:
    state = thread(user()).advanced(
        message_history=messages,
        agent_context_state=thread().agent_context_state,
        environment_states={},
    )
    restored = HarnessState.model_validate_json(state.model_dump_json())
    assert len(restored.message_history) == len(messages)
    safe_history(restored.message_history, finished=None, leave_open=False, now=NOW)
    return restored


def test_field_case_48_four_times_the_messages_are_four_times_the_work() -> None:
    round_trip(long_history(20))
    short, long = (calls_made(lambda length=length: round_trip(long_history(length))) for length in (500, 2_000))
    assert short > 1_000
    assert 3.5 < long / short < 4.5


def test_field_case_48_classes_and_pending_calls_survive() -> None:
    messages = [user(), *long_history(200), response('so', call('ask'))]
    restored = round_trip(messages)
    assert [type(message) for message in restored.message_history] == [type(message) for message in messages]
    assert {type(part) for message in restored.message_history for part in message.parts} >= {
        TextPart,
        ToolCallPart,
        ToolReturnPart,
    }
    assert isinstance(restored.message_history[0], ModelRequest)
    assert isinstance(restored.message_history[-1], ModelResponse)
    assert restored.message_history == tuple(messages)
