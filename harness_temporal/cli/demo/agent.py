"""The demo's agent: the code librarian of the step-persistence seed, with a scripted model."""

from __future__ import annotations

from datetime import timedelta

from pydantic_ai import Agent
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.toolsets import FunctionToolset

from harness_temporal.cli.demo.files import DemoFiles
from harness_temporal.cli.demo.script import answer_from_tools
from harness_temporal.cli.demo.tools import LibrarianTools
from harness_temporal.step_persistence import SqliteStepStore, StepPersistence
from harness_temporal.temporal import HarnessDurability

AGENT_NAME = 'code_librarian'
PROMPT = 'Find ThinkingPartDelta and confirm the callable allowance'
HEARTBEAT_TIMEOUT = timedelta(seconds=2)
"""Far below the default: nothing else in the demo can hold up a worker's heartbeats, and people are watching."""


def librarian(files: DemoFiles) -> Agent:
    """Make the agent."""
    store = SqliteStepStore(files.store)
    return Agent(
        FunctionModel(answer_from_tools, model_name='scripted'),
        name=AGENT_NAME,
        instructions='You answer questions about the source of the installed `pydantic_ai`.',
        toolsets=[FunctionToolset(LibrarianTools(files, store).all(), id='library')],
        capabilities=[
            HarnessDurability(activity_config={'heartbeat_timeout': HEARTBEAT_TIMEOUT}),
            StepPersistence(store=store, agent_name=AGENT_NAME),
        ],
    )
