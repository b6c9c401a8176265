"""The agent that is measured: the same work for every variant, only its durability and persistence differ.

The worker names the variant in the environment, because a workflow sandbox imports this module again.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.durable_exec.temporal import TemporalDurability
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from temporalio.common import RetryPolicy
from temporalio.workflow import ActivityConfig

VARIANT, STORE, RESULT_SIZE = 'BENCHMARK_VARIANT', 'BENCHMARK_STORE', 'BENCHMARK_RESULT_BYTES'
"""Environment variables: which agent, the path of its store's file, and the bytes of what its tool returns."""

RESULT_BYTES = int(os.environ.get(RESULT_SIZE, '2048'))

ACTIVITY_CONFIG = ActivityConfig(
    start_to_close_timeout=timedelta(minutes=10),
    heartbeat_timeout=timedelta(seconds=30),
    retry_policy=RetryPolicy(initial_interval=timedelta(seconds=1), maximum_interval=timedelta(seconds=30)),
)
"""What `HarnessDurability` sets by itself, so that all variants schedule and heartbeat alike."""


def prompt(steps: int, tools: int) -> str:
    return f'{steps}x{tools}'


def respond(messages: Sequence[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Call the tool as often per step and for as many steps as the prompt says."""
    first = messages[0]
    assert isinstance(first, ModelRequest)
    text = next(part.content for part in first.parts if isinstance(part, UserPromptPart))
    steps, tools = map(int, str(text).split('x'))
    step = sum(isinstance(message, ModelResponse) for message in messages)
    if step >= steps:
        return ModelResponse(parts=[TextPart(f'read {steps * tools} pages')])
    calls = [
        ToolCallPart('read_page', {'step': step, 'page': page}, tool_call_id=f'call-{step}-{page}')
        for page in range(tools)
    ]
    return ModelResponse(parts=calls)


async def read_page(step: int, page: int) -> str:
    """Read a page: text of the size of a typical tool result."""
    line = f'step {step}, page {page}: the quick brown fox jumps over the lazy dog. '
    return (line * (RESULT_BYTES // len(line) + 1))[:RESULT_BYTES]


def capabilities(variant: str, store: str) -> list[AbstractCapability[Any]]:
    """Return a variant's capabilities. A variant imports only what it uses."""
    match variant:
        case 'alone':
            return [TemporalDurability(activity_config=ACTIVITY_CONFIG)]
        case 'ours' | 'stored' | 'sealed' | 'dedicated':
            from harness_temporal import HarnessDurability, StepPersistence
            from harness_temporal.stores import SqliteStepStore

            boundaries = 'dedicated' if variant == 'dedicated' else 'inline'
            return [HarnessDurability(), StepPersistence(store=SqliteStepStore(store), boundaries=boundaries)]
        case 'peer':
            from pydantic_ai_harness.step_persistence import SqliteStepStore as PeerStore
            from pydantic_ai_harness.step_persistence import StepPersistence as PeerPersistence

            peer = PeerPersistence(store=PeerStore(database=store))
            return [TemporalDurability(activity_config=ACTIVITY_CONFIG), peer]
        case _:
            raise ValueError(f'no variant {variant!r}')


agent = Agent(
    FunctionModel(respond, model_name='scripted'),
    name='benchmark',
    tools=[read_page],
    capabilities=capabilities(os.environ.get(VARIANT, 'alone'), os.environ.get(STORE, '')),
)
