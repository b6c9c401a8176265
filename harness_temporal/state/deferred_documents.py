"""Answers to deferred calls as a JSON document, for a host that keeps them or sends them to a workflow."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Any, cast

from pydantic import TypeAdapter, ValidationError
from pydantic_ai.exceptions import ModelRetry, ToolFailed
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults
from pydantic_core import PydanticSerializationError, from_json, to_json

from harness_temporal.state.deferred import DeferredToolResume, resume_error
from harness_temporal.step_persistence.outcomes import ended_with_error, ended_with_value, replay


@cache
def _adapters() -> tuple[TypeAdapter[DeferredToolRequests], TypeAdapter[DeferredToolResults]]:
    return TypeAdapter(DeferredToolRequests), TypeAdapter(DeferredToolResults)


def resume_document(resume: DeferredToolResume) -> dict[str, Any]:
    """Return answers as plain JSON values.

    Results of calls have the form in which the effect ledger keeps them, so that a `ToolReturn` stays one.

    Raises:
        DeferredResumeError: A request or result has no JSON form (`deferred_resume_invalid`).
    """
    requests, _ = _adapters()
    try:
        asked = requests.dump_python(resume.requests, mode='json')
    except PydanticSerializationError as error:
        raise resume_error('deferred_resume_invalid', f'A request has no JSON form: {error}') from error
    return {'requests': asked, **results_document(resume.results), 'recovery': resume.recovery}


def results_document(given: DeferredToolResults) -> dict[str, Any]:
    """Return the answers alone, without what they answer.

    Raises:
        DeferredResumeError: A result has no JSON form (`deferred_resume_invalid`).
    """
    _, results = _adapters()
    try:
        return {
            'results': results.dump_python(replace(given, calls={}), mode='json'),
            'calls': {call_id: _call_document(call_id, value) for call_id, value in given.calls.items()},
        }
    except PydanticSerializationError as error:
        raise resume_error('deferred_resume_invalid', f'A result has no JSON form: {error}') from error


def read_resume(document: object) -> DeferredToolResume:
    """Read answers back.

    Raises:
        DeferredResumeError: It is no such document (`deferred_resume_invalid`).
    """
    requests, _ = _adapters()
    with _refusing_what_is_no_document():
        fields = cast(Mapping[str, Any], document)
        return DeferredToolResume(
            requests.validate_python(fields['requests']), _results(fields), recovery=bool(fields['recovery'])
        )


def read_results(document: object) -> DeferredToolResults:
    """Read answers alone back.

    Raises:
        DeferredResumeError: It is no such document (`deferred_resume_invalid`).
    """
    with _refusing_what_is_no_document():
        return _results(cast(Mapping[str, Any], document))


def _results(fields: Mapping[str, Any]) -> DeferredToolResults:
    _, results = _adapters()
    calls = {call_id: _call_result(value) for call_id, value in fields['calls'].items()}
    return replace(results.validate_python(fields['results']), calls=calls)


@contextmanager
def _refusing_what_is_no_document() -> Generator[None]:
    try:
        yield
    except (KeyError, TypeError, AttributeError, ValidationError, PydanticSerializationError) as error:
        raise resume_error('deferred_resume_invalid', f'This is not a document of answers: {error}') from error


def _call_document(call_id: str, value: Any) -> Any:
    ended = ended_with_error(value) if isinstance(value, ModelRetry | ToolFailed) else ended_with_value(value)
    if ended.value is None:
        raise resume_error('deferred_resume_invalid', f'The result of {call_id!r} has no JSON form.', call_id)
    return from_json(ended.value)


def _call_result(document: Any) -> Any:
    try:
        return replay(to_json(document))
    except (ModelRetry, ToolFailed) as told:
        return told
