"""The run that every store is given: each step a response that calls a tool, and a request with what it returned."""

from __future__ import annotations

from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, ToolCallPart, ToolReturnPart, UserPromptPart

from benchmarks.agents import RESULT_BYTES

RUN, TOOL = 'benchmark-run', 'read_page'


def called(step: int) -> str:
    return f'call-{step}'


def prompt() -> ModelRequest:
    return ModelRequest(parts=[UserPromptPart('Read all pages.')])


def response(step: int) -> ModelResponse:
    return ModelResponse(parts=[ToolCallPart(TOOL, {'step': step}, called(step))], model_name='scripted')


def result(step: int) -> str:
    line = f'step {step}: the quick brown fox jumps over the lazy dog. '
    return (line * (RESULT_BYTES // len(line) + 1))[:RESULT_BYTES]


def returned(step: int) -> ModelRequest:
    return ModelRequest(parts=[ToolReturnPart(TOOL, result(step), called(step))])


def last() -> ModelResponse:
    return ModelResponse(parts=[TextPart('All pages are read.')], model_name='scripted')
