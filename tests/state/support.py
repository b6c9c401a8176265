"""An agent with one tool of each kind, a model that follows a script, and short ways to write histories."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from pydantic_ai import Agent, RunContext
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, ModelRetry, ToolFailed
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaThinkingPart, DeltaToolCall, FunctionModel
from pydantic_ai.tools import Tool, ToolDefinition
from pydantic_ai.toolsets import ExternalToolset
from pydantic_core import to_json

from harness_temporal.state import AgentExecutable, HarnessState, RunBindings
from harness_temporal.tools import RECOVERY_RETRY_SAFE_METADATA_KEY, recovery_retryable

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
THREAD = 'thr_test1'
MARKED = {RECOVERY_RETRY_SAFE_METADATA_KEY: True}

# What a streaming model does: text, thinking, a call, an error to raise, or several of these in one response.
Delta = str | DeltaThinkingPart | ToolCallPart | Exception
Step = str | Exception | Sequence[Delta]


class Scripted:
    """A model that answers with one step after another, and keeps what it was sent."""

    def __init__(self, *steps: Step) -> None:
        self.steps = list(steps)
        self.sent: list[list[ModelMessage]] = []
        self.offered: list[list[str]] = []
        self.model = FunctionModel(self._respond, stream_function=self._stream)

    @property
    def requests(self) -> int:
        return len(self.sent)

    def _next(self, messages: list[ModelMessage], info: AgentInfo) -> Step:
        self.sent.append(list(messages))
        self.offered.append([tool.name for tool in info.function_tools])
        return self.steps[len(self.sent) - 1] if len(self.sent) <= len(self.steps) else 'done'

    def _respond(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        step = self._next(messages, info)
        parts: list[ModelResponsePart] = []
        for item in [step] if isinstance(step, str | Exception) else step:
            if isinstance(item, Exception):
                raise item
            assert isinstance(item, str | ToolCallPart)
            parts.append(TextPart(item) if isinstance(item, str) else item)
        return ModelResponse(parts=parts)

    async def _stream(self, messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        step = self._next(messages, info)
        for index, item in enumerate([step] if isinstance(step, str | Exception) else step):
            if isinstance(item, Exception):
                raise item
            if isinstance(item, str):
                yield item
            elif isinstance(item, DeltaThinkingPart):
                yield {index: item}
            else:
                yield {
                    index: DeltaToolCall(
                        name=item.tool_name, json_args=item.args_as_json_str(), tool_call_id=item.tool_call_id
                    )
                }


class Tools:
    """One tool of each kind. `ran` is what was executed, with the approved flag where the tool looks at it."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.approved: list[bool] = []
        self.arguments: list[int] = []
        self.metadata: list[Any] = []

    def tools(self) -> list[Tool[Any]]:
        async def plain(x: int = 1) -> str:
            self.ran.append('plain')
            return f'plain {x}'

        async def other(x: int = 1) -> str:
            self.ran.append('other')
            return f'other {x}'

        async def safe(ctx: RunContext[Any], x: int = 1) -> str:
            self.ran.append('safe')
            self.approved.append(ctx.tool_call_approved)
            return f'safe {x}'

        async def safe_ask(ctx: RunContext[Any]) -> str:
            if not ctx.tool_call_approved:
                self.ran.append('safe_ask?')
                raise ApprovalRequired(metadata={'why': 'dear'})
            self.ran.append('safe_ask')
            return 'asked'

        async def ask(ctx: RunContext[Any], x: int = 1) -> str:
            self.ran.append('ask')
            self.approved.append(ctx.tool_call_approved)
            self.arguments.append(x)
            self.metadata.append(ctx.tool_call_metadata)
            return f'ask {x}'

        async def defers() -> str:
            self.ran.append('defers')
            raise CallDeferred(metadata={'job': 1})

        async def crash() -> str:
            self.ran.append('crash')
            raise RuntimeError('no')

        async def fails() -> str:
            self.ran.append('fails')
            raise ToolFailed('it failed')

        async def again() -> str:
            self.ran.append('again')
            raise ModelRetry('once more')

        marked = dict(metadata=dict(MARKED))
        return [
            Tool(plain),
            Tool(other),
            recovery_retryable(safe),
            Tool(safe_ask, **marked),
            Tool(ask, requires_approval=True),
            Tool(ask, name='safe_approval', requires_approval=True, **marked),
            Tool(defers),
            recovery_retryable(crash),
            recovery_retryable(fails),
            recovery_retryable(again),
        ]


def external_tools() -> ExternalToolset[Any]:
    schema = {'type': 'object', 'properties': {'x': {'type': 'integer'}}}
    return ExternalToolset(
        [
            ToolDefinition(name='outside', parameters_json_schema=schema),
            ToolDefinition(name='safe_outside', parameters_json_schema=schema, metadata=dict(MARKED)),
        ]
    )


class Bench:
    """An executable, its script and its tools."""

    def __init__(self, *steps: Step, without: Sequence[str] = (), **settings: Any) -> None:
        self.model = Scripted(*steps)
        self.tools = Tools()
        toolsets = settings.pop('toolsets', [external_tools()])
        extra = settings.pop('tools', [])
        self.agent: Agent[Any, Any] = Agent(
            self.model.model,
            tools=[*(tool for tool in self.tools.tools() if tool.name not in without), *extra],
            toolsets=toolsets,
            **settings,
        )
        self.executable: AgentExecutable[Any, Any] = AgentExecutable(self.agent, now=lambda: NOW)

    @property
    def ran(self) -> list[str]:
        return self.tools.ran

    async def run(self, prompt: Any = None, *, bindings: RunBindings[Any] | None = None, **arguments: Any) -> Any:
        return await self.executable.run(prompt, bindings=bindings or RunBindings(), **arguments)

    def stream(self, prompt: Any = None, *, bindings: RunBindings[Any] | None = None, **arguments: Any) -> Any:
        return self.executable.stream(prompt, bindings=bindings or RunBindings(), **arguments)


def call(name: str, call_id: str | None = None, **arguments: Any) -> ToolCallPart:
    return ToolCallPart(name, arguments, tool_call_id=call_id if call_id is not None else name)


def calls(*names: str) -> list[ModelResponsePart]:
    return [call(name) for name in names]


def user(text: str = 'go') -> ModelRequest:
    return ModelRequest(parts=[UserPromptPart(text)])


def response(*parts: ModelResponsePart | str, **fields: Any) -> ModelResponse:
    return ModelResponse(parts=[TextPart(part) if isinstance(part, str) else part for part in parts], **fields)


def returned(*call_ids: str, content: Any = 'OLD', **fields: Any) -> ModelRequest:
    state = fields.pop('state', 'complete')
    parts: list[ModelRequestPart] = [
        ToolReturnPart(call_id.split('#')[0], content, tool_call_id=call_id, **fields) for call_id in call_ids
    ]
    return ModelRequest(parts=parts, state=state)


def thread(*messages: ModelMessage, **fields: Any) -> HarnessState:
    return HarnessState.new(thread_id=THREAD, message_history=messages, **fields)


def pending(*names: str) -> HarnessState:
    """A thread whose last response calls these tools; nothing has answered."""
    return thread(user(), response(*calls(*names)))


def outcomes(state: HarnessState | None) -> dict[str, str]:
    """How each call of the thread was answered: `unknown`, or the outcome and content of its return."""
    assert state is not None
    found: dict[str, str] = {}
    for message in state.message_history:
        for part in message.parts:
            if isinstance(part, ToolReturnPart):
                assert part.tool_call_id not in found, f'{part.tool_call_id} is answered twice'
                found[part.tool_call_id] = outcome(part)
    return found


def outcome(part: ToolReturnPart) -> str:
    if part.outcome == 'failed' and 'may have taken effect' in str(part.content):
        return 'unknown'
    told = part.content if isinstance(part.content, str) else to_json(part.content).decode()
    return f'{part.outcome}: {told}'


def kinds(messages: Sequence[ModelMessage]) -> list[str]:
    """One word per message: who it is from, its state and its parts."""
    told: list[str] = []
    for message in messages:
        state = '' if message.state == 'complete' else f'!{message.state}'
        told.append(f'{message.kind}{state}({",".join(_kind(part) for part in message.parts)})')
    return told


def _kind(part: Any) -> str:
    match part.part_kind:
        case 'user-prompt' | 'text' | 'thinking':
            return f'{part.part_kind}:{part.content}'
        case 'tool-call':
            return f'call:{part.tool_call_id}'
        case 'tool-return':
            return f'{part.tool_call_id}={outcome(part).split(":")[0]}'
        case other:
            return other


def asked(result: Any) -> Mapping[str, list[str]]:
    """What a suspended run waits for. Its order is not that of the calls."""
    assert result.status == 'suspended', result
    return {
        'approvals': sorted(item.tool_call_id for item in result.deferred.approvals),
        'calls': sorted(item.tool_call_id for item in result.deferred.calls),
    }
