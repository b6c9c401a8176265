"""The librarian's model: it decides by rules, from what the tools really gave."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo

from harness_temporal.cli.demo.tools import EFFECT_TOOL

_CLASS_LINES = 90
_ALIAS_LINES = 6


def answer_from_tools(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Take the next step: find the class, read it, find and read its field's type, have it reviewed, answer."""
    returns = [
        part
        for message in messages
        if isinstance(message, ModelRequest)
        for part in message.parts
        if isinstance(part, ToolReturnPart)
    ]
    step = _next_step(returns)
    if isinstance(step, str):
        return ModelResponse(parts=[TextPart(step)])
    name, arguments = step
    return ModelResponse(parts=[ToolCallPart(name, arguments, tool_call_id=f'call-{len(returns) + 1}')])


def _next_step(returns: Sequence[ToolReturnPart]) -> tuple[str, dict[str, str | int]] | str:
    match [part.model_response_str() for part in returns]:
        case []:
            return 'search_source', {'pattern': r'^class ThinkingPartDelta\b'}
        case [found]:
            return 'read_source', _Hit.first(found).lines(_CLASS_LINES)
        case [_, source]:
            return 'search_source', {'pattern': rf'^{_type_of_details(source)}\b.*='}
        case [_, _, found]:
            return 'read_source', _Hit.first(found).lines(_ALIAS_LINES)
        case [found, source, _, alias]:
            return EFFECT_TOOL, {'finding': _finding(found, source, alias)}
        case [found, source, _, alias, *_]:
            finding = _finding(found, source, alias)
            if returns[-1].tool_name == 'check_ledger':
                if finding not in returns[-1].model_response_str():
                    return EFFECT_TOOL, {'finding': finding}
                return f'{finding}. Its review was already paid for, so it was not paid for again.'
            if returns[-1].outcome == 'success':
                return f'{finding}. Its review is paid for.'
            return 'check_ledger', {}
        case _:  # pragma: no cover  # the cases above are all
            raise AssertionError


@dataclass(frozen=True)
class _Hit:
    path: str
    line: int

    @classmethod
    def first(cls, found: str) -> _Hit:
        path, line, _ = found.split(':', 2)
        return cls(path, int(line))

    def lines(self, count: int) -> dict[str, str | int]:
        return {'path': self.path, 'first': self.line, 'last': self.line + count}


def _finding(found: str, source: str, alias: str) -> str:
    where, details = _Hit.first(found), _type_of_details(source)
    allowance = 'allows' if 'Callable[' in alias else 'does not allow'
    return (
        f'`ThinkingPartDelta` ({where.path}:{where.line}) {allowance} a callable as `provider_details` '
        f'(`{details}`); `{_method_that_calls(source)}` calls it'
    )


def _type_of_details(source: str) -> str:
    annotation = re.search(r'provider_details: (\w+)', source)
    return annotation[1] if annotation else 'ProviderDetailsDelta'


def _method_that_calls(source: str) -> str:
    """Return the first method in whose body `callable(` stands."""
    before, _, _ = source.partition('callable(')
    return re.findall(r'def (\w+)\(', before)[-1]
