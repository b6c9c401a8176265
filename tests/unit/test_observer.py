from __future__ import annotations

from typing import Any

import pytest

from harness_temporal.errors import NotStorableError
from harness_temporal.observability import HarnessMetrics, Observer, observing
from harness_temporal.records import StepEvent
from harness_temporal.step_persistence import InMemoryStepStore


class Told(Observer):
    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []

    def store_called(self, **call: Any) -> None:
        assert call.pop('seconds') >= 0
        self.calls.append(call)


async def test_a_store_is_timed_only_while_somebody_observes() -> None:
    told, store = Told(), InMemoryStepStore()
    good = StepEvent(run_id='run-1', kind='run_started', step_index=0)
    await store.append_event(good)
    with observing(told):
        await store.append_event(good)
        with pytest.raises(NotStorableError):
            await store.append_event(StepEvent(run_id='run-1', kind='run_started', step_index=-1))
    await store.append_event(good)
    call = {'store': 'InMemoryStepStore', 'operation': 'commit'}
    assert told.calls == [{**call, 'failed': False}, {**call, 'failed': True}]


def test_names_of_metrics_are_what_dashboards_know() -> None:
    names = {metric.name for metric in HarnessMetrics().registry.collect()}
    assert names == {
        'harness_runs_started',
        'harness_runs_ended',
        'harness_steps',
        'harness_tool_calls',
        'harness_unknown_outcomes',
        'harness_suppressed_duplicates',
        'harness_store_seconds',
        'harness_store_errors',
        'harness_payload_saved_bytes',
        'harness_payload_stored_bytes',
    }
