"""Answers to the calls that a suspended run waits for (state-and-resume seed, "Structured Suspension"). Pure."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from pydantic_ai.messages import ModelMessage, ToolCallPart
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, ToolApproved

from harness_temporal.errors import DeferredResumeError
from harness_temporal.state.frontier import Frontier, find_frontier


@dataclass(frozen=True)
class DeferredToolResume:
    """The requests of a suspended run with their results.

    Both are copied. A host keeps them beside its checkpoint until the history has taken them in, which `remaining`
    tells, and passes what is left with `recovery=True` after a resumed run was interrupted: results and denials are
    then applied under every recovery policy, while an approval is no permission to run the call again.
    """

    requests: DeferredToolRequests
    results: DeferredToolResults
    recovery: bool = False

    def __post_init__(self) -> None:
        given: tuple[Any, Any] = (self.requests, self.results)
        if not (isinstance(given[0], DeferredToolRequests) and isinstance(given[1], DeferredToolResults)):
            raise resume_error('deferred_resume_invalid', 'It takes `DeferredToolRequests` and `DeferredToolResults`.')
        try:
            requests, results = copy.deepcopy(given)
        except Exception as error:
            raise resume_error('deferred_resume_invalid', f'A request or result cannot be copied: {error}') from error
        object.__setattr__(self, 'requests', requests)
        object.__setattr__(self, 'results', results)

    def remaining(self, message_history: Sequence[ModelMessage]) -> DeferredToolResume | None:
        """Return what `message_history` has not taken in, or `None`: it has all, or a later response went on without.

        Raises:
            DeferredResumeError: The history has no response, or a result is missing.
        """
        check_results_cover(self)
        frontier = frontier_of(message_history)
        open_ids = {call.tool_call_id for call in frontier.pending}
        return self._restricted(open_ids)

    def _restricted(self, call_ids: set[str]) -> DeferredToolResume | None:
        requests = requests_of(self.requests, call_ids)
        if requests is None:
            return None
        # Each field is a mapping by call; which there are depends on the release of Pydantic AI.
        results = {item.name: _only(getattr(self.results, item.name), call_ids) for item in fields(self.results)}
        return DeferredToolResume(requests, DeferredToolResults(**results), self.recovery)

    def answers(self) -> dict[str, Any]:
        """Return, by call, what stands whatever the recovery policy: external results and denials."""
        return {
            call_id: result
            for call_id, result in self.results.to_tool_call_results().items()
            if not isinstance(result, ToolApproved)
        }


def requests_of(requests: DeferredToolRequests, call_ids: Collection[str]) -> DeferredToolRequests | None:
    """Return the requests of some of the calls; `None` if none of them is asked about."""
    others = DeferredToolResults(
        calls={call.tool_call_id: None for call in requests.calls if call.tool_call_id not in call_ids},
        approvals={call.tool_call_id: True for call in requests.approvals if call.tool_call_id not in call_ids},
    )
    return requests.remaining(others)


def _only(mapping: Mapping[str, Any], keys: set[str]) -> dict[str, Any]:
    return {key: value for key, value in mapping.items() if key in keys}


def resume_error(code: str, message: str, call_id: str | None = None) -> DeferredResumeError:
    """Make an error about a batch, or about one call of it."""
    return DeferredResumeError(code, message, {'tool_call_id': call_id} if call_id is not None else None)


def frontier_of(messages: Sequence[ModelMessage]) -> Frontier:
    """Return the last response, which must be the one that asked.

    Raises:
        DeferredResumeError: There is none (`deferred_request_missing`).
    """
    frontier = find_frontier(messages)
    if frontier is None:
        raise resume_error('deferred_request_missing', 'The history has no response that could have asked.')
    return frontier


def check_results_cover(resume: DeferredToolResume) -> None:
    """Make sure that each request has a result of its own category, and each result its request.

    Raises:
        DeferredResumeError: `deferred_results_incomplete`.
    """
    pairs = ((resume.requests.calls, resume.results.calls), (resume.requests.approvals, resume.results.approvals))
    for (requests, results), category in zip(pairs, ('calls', 'approvals'), strict=True):
        asked = call_ids(requests)
        for call_id in [*asked, *results]:
            if call_id not in asked or call_id not in results:
                raise resume_error(
                    'deferred_results_incomplete',
                    f'`{category}` has {"no result of" if call_id in asked else "a result nobody asked for,"} '
                    f'{call_id!r}.',
                    call_id,
                )


def call_ids(calls: Iterable[ToolCallPart]) -> list[str]:
    """Return the ids of calls."""
    return [call.tool_call_id for call in calls]
