"""The `Memory` capability: which notebook, what of it the model sees and when, and the tools."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic_ai.capabilities import AbstractCapability, durable_operation
from pydantic_ai.models import Model, ModelRequestContext
from pydantic_ai.tools import AgentDepsT, RunContext
from pydantic_ai.toolsets import FunctionToolset

from harness_temporal.errors import ConfigurationError, StoreError
from harness_temporal.memory.in_memory import InMemoryMemoryStore
from harness_temporal.memory.injection import Budget, render, with_memory
from harness_temporal.memory.model import MemoryModel
from harness_temporal.memory.notes import MAIN, Notebook
from harness_temporal.memory.protocol import MemoryStore
from harness_temporal.memory.search import Ranker
from harness_temporal.memory.toolset import MemoryTools, memory_toolset

_log = logging.getLogger(__name__)
_NAME = re.compile(r'[A-Za-z][A-Za-z0-9_-]{0,39}')
_PREFIX = re.compile(r'(?:[A-Za-z][A-Za-z0-9_-]{0,29})?')


@dataclass
class Memory(AbstractCapability[AgentDepsT]):
    """A notebook that an agent keeps between its runs, one for each namespace.

    The note `main` and the names of the others are shown to the model with every request, in a block that is in that
    request only: neither the run's history nor a snapshot has it. With four tools the model writes, reads, deletes and
    searches notes; which notebook they are of is not the model's to say.

    It works in a plain `Agent.run` and under every Pydantic AI durability capability.
    """

    store: MemoryStore = field(default_factory=InMemoryMemoryStore)
    """Where notebooks are kept."""
    namespace: str | Callable[[AgentDepsT], str] = 'default'
    """Whose notebook it is, of those of the agent: given, or told by the run's dependencies."""
    agent_name: str | None = None
    """The agent whose notebooks they are; by default the one that runs. Agents with the same name here share them."""
    max_tokens: int = 2000
    """How much of the notebook a request may have, with a token taken for three bytes of UTF-8."""
    max_lines: int = 200
    """How many lines a request may have."""
    on_injection_error: Literal['raise', 'ignore'] = 'raise'
    """What becomes of a request when the store fails: it fails too, or is sent without memory, and a warning logged."""
    boundaries: Literal['inline', 'dedicated'] = 'inline'
    """On a durable engine: `inline` reads the notebook within the unit that sends the request; `dedicated` makes that a
    unit of its own before each request, whose result is in the engine's history, a row in the Temporal UI."""
    rank: Ranker | None = None
    """Searches in the place of the literal search."""
    tool_prefix: str = ''
    """Put before the names of the tools. Set it when an agent has more than one memory."""
    id: str | None = 'memory'
    """Stable, so that tools and durable operations keep their names. Set it when an agent has more than one memory."""

    def __post_init__(self) -> None:
        """Check the settings.

        Raises:
            ConfigurationError: One of them is wrong.
        """
        self._budget = Budget(self.max_tokens, self.max_lines)
        if self.id is None or not _NAME.fullmatch(self.id):
            raise ConfigurationError(
                f'`id` must be up to 40 letters, digits, `_` and `-` and begin with a letter, got {self.id!r}.'
            )
        if not _PREFIX.fullmatch(self.tool_prefix):
            raise ConfigurationError(
                f'`tool_prefix` must be up to 30 letters, digits, `_` and `-` and begin with a letter, got '
                f'{self.tool_prefix!r}.'
            )
        # One for all runs: durable engines know it by identity.
        tools = MemoryTools(self.store, self._notebook, self.rank)
        self._toolset = memory_toolset(tools, id=self.id, prefix=self.tool_prefix)

    @classmethod
    def combine(cls, capabilities: Sequence[AbstractCapability[AgentDepsT]]) -> AbstractCapability[AgentDepsT]:
        """Refuse two memories under one id: their notebooks are not one.

        Raises:
            ConfigurationError: Always.
        """
        raise ConfigurationError(
            f'An agent has {len(capabilities)} memories with the id {capabilities[0].id!r}. Give each an `id` and a '
            '`tool_prefix` of its own.'
        )

    def get_toolset(self) -> FunctionToolset[AgentDepsT]:
        """Return the four tools."""
        return self._toolset

    def get_wrapper_model(self, model: Model) -> Model | None:
        """Inline, let the requests be sent with the memory in them."""
        return MemoryModel(model, self._block) if self.boundaries == 'inline' else None

    async def before_model_request(
        self, ctx: RunContext[AgentDepsT], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """With dedicated boundaries, load the memory and put it into this request."""
        if self.boundaries == 'dedicated':
            request_context.messages = with_memory(request_context.messages, await self._load(ctx))
        return request_context

    @durable_operation(name='load')
    async def _load(self, ctx: RunContext[AgentDepsT]) -> str:
        return await self._block(ctx)

    async def _block(self, ctx: RunContext[AgentDepsT]) -> str:
        """Read the notebook once and return the block for the model; nothing if there is nothing to show."""
        notebook = self._notebook(ctx)
        try:
            glance = await self.store.glance(
                notebook, name=MAIN, max_bytes=self._budget.max_bytes, max_names=self._budget.max_names
            )
        except StoreError as error:
            if self.on_injection_error == 'raise':
                raise
            _log.warning('A request is sent without the memory of %r: %s', notebook.agent, error)
            return ''
        return render(glance, memory_id=self.id or '', tool_prefix=self.tool_prefix, budget=self._budget)

    def _notebook(self, ctx: RunContext[Any]) -> Notebook:
        name = self.agent_name or (ctx.agent.name if ctx.agent is not None else None)
        if not name:
            raise ConfigurationError(
                '`Memory` needs to know whose it is: set `agent_name=`, or give the agent a `name`.'
            )
        return Notebook(name, self.namespace(ctx.deps) if callable(self.namespace) else self.namespace)
