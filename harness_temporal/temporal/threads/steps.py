"""What a run did, step by step, in few words. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart

from harness_temporal.temporal.threads.values import StepSummary

STEPS_KEPT = 100
"""How many steps are told of, from the end."""
TEXT_CHARACTERS = 200


def summarize(messages: Sequence[ModelMessage], run_id: str) -> list[StepSummary]:
    """Return the steps of the run whose id the messages carry."""
    mine = [message for message in messages if message.run_id == run_id]
    responses = [message for message in mine if isinstance(message, ModelResponse)]
    steps = [_step(number, response) for number, response in enumerate(responses, start=1)]
    return steps[-STEPS_KEPT:]


def _step(number: int, response: ModelResponse) -> StepSummary:
    text = ''.join(part.content for part in response.parts if isinstance(part, TextPart))
    return StepSummary(
        number=number,
        text=text[:TEXT_CHARACTERS] or None,
        tools=[part.tool_name for part in response.parts if isinstance(part, ToolCallPart)],
    )
