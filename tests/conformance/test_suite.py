"""The suite itself: no test hides another, every kind of message is tried, and a store that breaks a rule fails."""

from __future__ import annotations

import inspect
import pkgutil
import subprocess
import sys
import textwrap
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic_ai import messages

from harness_temporal import testing
from harness_temporal.records import ContinuableSnapshot, RunRecord, StepEvent, ToolEffectRecord
from harness_temporal.stores.memory import InMemoryStepStore
from harness_temporal.stores.protocol import PreparedBatch, SnapshotRow
from harness_temporal.testing import StepStoreConformance
from harness_temporal.testing.samples import MESSAGES
from tests.conformance.opening import closing_what_it_opens

TOPICS = [topic for topic in StepStoreConformance.__mro__ if topic.__name__.endswith('Conformance')][1:]


def rules(topic: type) -> list[str]:
    return [name for name in vars(topic) if name.startswith('test_')]


def test_no_rule_hides_another() -> None:
    names = [name for topic in TOPICS for name in rules(topic)]
    assert len(names) > 100
    assert sorted(names) == sorted(set(names))


def test_every_topic_has_rules_and_is_exported() -> None:
    assert [topic.__name__ for topic in TOPICS if not rules(topic)] == []
    assert {topic.__name__ for topic in TOPICS} < {*testing.__all__}
    assert len(TOPICS) == 10


def test_every_rule_runs_in_the_event_loop() -> None:
    for topic in TOPICS:
        assert [name for name in rules(topic) if not inspect.iscoroutinefunction(vars(topic)[name])] == []


def test_assertions_of_every_topic_are_rewritten() -> None:
    modules = {module.name for module in pkgutil.iter_modules(testing.__path__)} - {'samples'}
    loaders = {name: type(sys.modules[f'{testing.__name__}.{name}'].__spec__.loader).__name__ for name in modules}  # type: ignore[union-attr]
    assert set(loaders.values()) == {'AssertionRewritingHook'}


def test_every_kind_of_part_is_tried() -> None:
    tried = {type(part) for message in MESSAGES.values() for part in message.parts}
    there_are = {
        get_args(member)[0]
        for union in (messages.ModelRequestPart, messages.ModelResponsePart)
        for member in get_args(get_args(union)[0])
    }
    old = {part for part in there_are if not isinstance(part, type) or part.__name__ == 'RetryPromptPart'}
    assert there_are - old - tried == set()


def test_package_needs_no_hypothesis() -> None:
    code = f'import sys, {testing.__name__}; print("hypothesis" in sys.modules)'
    printed = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == 'False'


def test_example_of_the_package_works_in_strict_mode(tmp_path: Path) -> None:
    assert testing.__doc__
    lines = testing.__doc__.splitlines()
    example = textwrap.dedent('\n'.join(line for line in lines if line.startswith('    ') or not line))
    assert 'from my_package import MyStore' in example
    example = example.replace(
        'from my_package import MyStore', 'from harness_temporal.stores import SqliteStepStore as MyStore'
    )
    (tmp_path / 'test_my_store.py').write_text(example)
    (tmp_path / 'pytest.ini').write_text(
        '[pytest]\nasyncio_mode = strict\nasyncio_default_fixture_loop_scope = function\nfilterwarnings = error\n'
    )
    command = [sys.executable, '-m', 'pytest', '-q', '-p', 'no:cacheprovider', '-k', 'unknown or reopening']
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert ' passed' in done.stdout
    assert 'skipped' not in done.stdout


# --- stores that break a rule ---


class AppendsKeysTwice(InMemoryStepStore):
    async def _write(self, batch: PreparedBatch) -> None:
        batch.events = [replace(event, idempotency_key=None) for event in batch.events]
        await super()._write(batch)


class SortsByClock(InMemoryStepStore):
    async def list_events(self, **arguments: Any) -> list[StepEvent]:
        return sorted(await super().list_events(**arguments), key=lambda event: event.timestamp)


class SortsRunsByText(InMemoryStepStore):
    async def list_runs(self, **arguments: Any) -> list[RunRecord]:
        limit = arguments.pop('limit', None)
        found = sorted(await super().list_runs(**arguments), key=lambda run: run.run_id)
        return found if limit is None else found[len(found) - limit :]


class OverwritesRuns(InMemoryStepStore):
    async def _write(self, batch: PreparedBatch) -> None:
        for run in batch.runs:
            self._records.pop(run.run_id, None)
        await super()._write(batch)


class OverwritesEffects(InMemoryStepStore):
    async def _write(self, batch: PreparedBatch) -> None:
        for effect in batch.effects:
            self._run(effect.run_id).effects.pop(effect.ledger_key, None)
        await super()._write(batch)


class WritesHalves(InMemoryStepStore):
    async def _write(self, batch: PreparedBatch) -> None:
        await super()._write(PreparedBatch(runs=batch.runs, events=batch.events))
        batch.runs, batch.events = [], []
        await super()._write(batch)


class ReadsInterruptedOnes(InMemoryStepStore):
    async def _read_snapshots(self, run_id: str, **arguments: Any) -> list[SnapshotRow]:
        return await super()._read_snapshots(run_id, **{**arguments, 'include_interrupted': True})


class PrunesToTheNewestOnly(InMemoryStepStore):
    async def _write(self, batch: PreparedBatch) -> None:
        await super()._write(batch)
        for run in self._runs.values():
            if self.max_snapshots_per_run is not None:
                run.snapshots = run.snapshots[-self.max_snapshots_per_run :]


class SharesItsRecords(InMemoryStepStore):
    async def get_run(self, *, run_id: str) -> RunRecord | None:
        return self._records.get(run_id)


class ForgetsValues(InMemoryStepStore):
    async def list_tool_effects(self, *, run_id: str) -> list[ToolEffectRecord]:
        return [
            replace(effect, value=effect.value or None) for effect in await super().list_tool_effects(run_id=run_id)
        ]


class LosesEmptyText(InMemoryStepStore):
    async def list_snapshots(self, **arguments: Any) -> list[ContinuableSnapshot]:
        found = await super().list_snapshots(**arguments)
        return [replace(snapshot, agent_name=snapshot.agent_name or None) for snapshot in found]


Rule = Callable[..., Awaitable[None]]


@pytest.mark.parametrize(
    ('broken', 'rule', 'arguments'),
    [
        (AppendsKeysTwice, 'test_second_event_with_a_key_is_dropped', {'key': 'key'}),
        (SortsByClock, 'test_events_are_in_order_of_writing_though_the_clock_goes_back', {}),
        (SortsRunsByText, 'test_runs_are_ordered_by_instant_whatever_their_offset', {}),
        (SortsRunsByText, 'test_runs_of_one_instant_are_in_order_of_registration', {}),
        (OverwritesRuns, 'test_another_registration_of_a_run_id_is_refused', {'first': 'one', 'second': 'two'}),
        (OverwritesRuns, 'test_same_registration_again_changes_nothing', {}),
        (OverwritesEffects, 'test_every_transition_is_the_ledgers', {}),
        (OverwritesEffects, 'test_completed_call_is_never_taken_over', {'holder': 'worker-b'}),
        (OverwritesEffects, 'test_of_many_holders_that_claim_a_call_exactly_one_wins', {}),
        (WritesHalves, 'test_conflict_writes_nothing_of_its_batch', {}),
        (WritesHalves, 'test_unknown_base_is_refused_and_nothing_written', {}),
        (ReadsInterruptedOnes, 'test_interrupted_snapshots_are_read_only_on_request', {}),
        (
            PrunesToTheNewestOnly,
            'test_newest_and_newest_complete_are_kept',
            {'bound': 1, 'states': 'ci', 'kept': [0, 1]},
        ),
        (SharesItsRecords, 'test_run_changed_after_reading_is_not_changed_in_the_store', {}),
        (ForgetsValues, 'test_value_reads_back_byte_for_byte', {'value': b''}),
        (LosesEmptyText, 'test_empty_text_of_a_snapshot_is_not_none', {}),
    ],
)
async def test_store_that_breaks_a_rule_fails(
    broken: type[InMemoryStepStore], rule: str, arguments: dict[str, Any]
) -> None:
    async def follow(make: type[InMemoryStepStore]) -> None:
        async with closing_what_it_opens(lambda bound: make(max_snapshots_per_run=bound)) as open_store:
            check: Rule = getattr(StepStoreConformance(), rule)
            stores = {'store': await open_store(), 'open_store': open_store}
            wanted = {name: stores[name] for name in inspect.signature(check).parameters if name in stores}
            await check(**wanted, **arguments)

    await follow(InMemoryStepStore)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        await follow(broken)
