"""The effect ledger: an entry only goes forward, and what it says can be relied on."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from itertools import product
from typing import get_args

import pytest
from pydantic_ai.exceptions import ToolFailed

from harness_temporal.errors import EffectNotUnresolvedError, HarnessError, ToolEffectConflictError
from harness_temporal.ledger import advance
from harness_temporal.records import ToolEffectRecord, ToolEffectStatus, ToolOutcome
from harness_temporal.step_persistence.outcomes import replay
from harness_temporal.step_persistence.resolving import (
    PERSON_HOLDER_PREFIX,
    RESOLVED_BY_METADATA_KEY,
    resolve_as_completed,
    resolve_as_failed,
)
from harness_temporal.stores.protocol import StepStore
from harness_temporal.testing.base import StoreTests
from harness_temporal.testing.samples import LONG_KEY, NOON, SEOUL, a_run, a_snapshot, a_start, an_end, an_event, turns

LATER = NOON + timedelta(minutes=1)


def _states() -> list[ToolEffectRecord]:
    return [
        a_start(
            status=status,
            attempts=attempts,
            holder=holder,
            idempotency_key=note,
            effect_summary=note,
            value=value,
            started_at=NOON + timedelta(seconds=attempts),
            ended_at=None if status == 'started' else LATER,
        )
        for status, attempts, holder, (note, value) in product(
            get_args(ToolEffectStatus), (0, 1, 2), ('a', 'b'), ((None, None), ('note', b'value'))
        )
    ]


class EffectsConformance(StoreTests):
    """Recording and reading what tools did."""

    async def test_entry_reads_back_with_every_field(self, store: StepStore) -> None:
        effect = ToolEffectRecord(
            tool_call_id='call-1',
            tool_name='charge_card',
            run_id='run-1',
            status='failed',
            started_at=NOON.astimezone(SEOUL),
            ended_at=LATER,
            idempotency_key='order-7',
            effect_summary='charged 3',
            call_key='key-1',
            step_index=4,
            attempts=3,
            holder='worker-a',
            outcome='error',
            value=b'\x00\xff',
            error='ValueError: no',
        )
        await store.record_tool_effect(effect)
        (read,) = await store.list_tool_effects(run_id='run-1')
        assert read == effect
        assert read.started_at.utcoffset() == timedelta(0)
        assert isinstance(read.seq, int)
        assert await store.get_tool_effect(run_id='run-1', tool_call_id='call-1') == effect

    async def test_entry_reads_back_with_nothing_optional(self, store: StepStore) -> None:
        effect = ToolEffectRecord(
            tool_call_id='call-1', tool_name='tool', run_id='run-1', status='started', started_at=NOON
        )
        await store.record_tool_effect(effect)
        assert await store.list_tool_effects(run_id='run-1') == [effect]

    async def test_empty_text_of_an_entry_is_not_none(self, store: StepStore) -> None:
        effect = an_end(
            tool_call_id='', tool_name='', idempotency_key='', effect_summary='', call_key='', holder='', error=''
        )
        await store.record_tool_effect(effect)
        assert await store.list_tool_effects(run_id='run-1') == [effect]
        assert await store.get_tool_effect(run_id='run-1', tool_call_id='') == effect

    @pytest.mark.parametrize('outcome', get_args(ToolOutcome))
    async def test_every_outcome_is_kept(self, store: StepStore, outcome: ToolOutcome) -> None:
        await store.record_tool_effect(an_end(outcome=outcome))
        assert [effect.outcome for effect in await store.list_tool_effects(run_id='run-1')] == [outcome]

    @pytest.mark.parametrize(
        'value',
        [None, b'', b'\x00', bytes(range(256)), b'\xff\xfe', b'{"a": 1}', bytes(range(256)) * 8192],
        ids=['none', 'empty', 'NUL', 'every byte', 'no UTF-8', 'JSON', '2 MiB'],
    )
    async def test_value_reads_back_byte_for_byte(self, store: StepStore, value: bytes | None) -> None:
        await store.record_tool_effect(an_end(value=value))
        (read,) = await store.list_tool_effects(run_id='run-1')
        assert read.value == value
        assert read.value is None or type(read.value) is bytes

    async def test_unknown_call_is_none(self, store: StepStore) -> None:
        await store.record_tool_effect(a_start())
        assert await store.get_tool_effect(run_id='run-1', tool_call_id='call-2') is None
        assert await store.get_tool_effect(run_id='run-1', tool_call_id='key-1') is None
        assert await store.get_tool_effect(run_id='run-1', tool_call_id='Call-1') is None
        assert await store.get_tool_effect(run_id='run-2', tool_call_id='call-1') is None
        assert await store.list_tool_effects(run_id='run-2') == []

    # --- the rule ---

    async def test_every_transition_is_the_ledgers(self, store: StepStore) -> None:
        pairs = [
            (replace(current, call_key=f'{index}'), replace(new, call_key=f'{index}'))
            for index, (current, new) in enumerate(product(_states(), _states()))
        ]
        await store.commit([current for current, _ in pairs])
        for index, (current, new) in enumerate(pairs):
            try:
                expected = advance(current, new) or current
            except ToolEffectConflictError:
                expected = current
                with pytest.raises(ToolEffectConflictError):
                    await store.record_tool_effect(new)
            else:
                await store.record_tool_effect(new)
            pairs[index] = (expected, new)
        assert await store.list_tool_effects(run_id='run-1') == [expected for expected, _ in pairs]

    async def test_holder_ends_what_it_started(self, store: StepStore) -> None:
        await store.record_tool_effect(a_start())
        await store.record_tool_effect(an_end(started_at=LATER))
        assert await store.list_tool_effects(run_id='run-1') == [an_end(started_at=NOON)]

    async def test_same_write_again_changes_nothing(self, store: StepStore) -> None:
        await store.record_tool_effect(a_start())
        await store.record_tool_effect(a_start())
        assert await store.list_tool_effects(run_id='run-1') == [a_start()]
        await store.record_tool_effect(an_end())
        await store.record_tool_effect(an_end(value=b'other', ended_at=LATER))
        assert await store.list_tool_effects(run_id='run-1') == [an_end()]

    async def test_late_start_does_not_reopen_a_completed_call(self, store: StepStore) -> None:
        await store.commit([a_start(), an_end()])
        await store.record_tool_effect(a_start())
        assert await store.list_tool_effects(run_id='run-1') == [an_end()]

    @pytest.mark.parametrize('holder', ['worker-a', 'worker-b'])
    async def test_completed_call_is_never_taken_over(self, store: StepStore, holder: str) -> None:
        await store.record_tool_effect(an_end())
        with pytest.raises(ToolEffectConflictError):
            await store.record_tool_effect(a_start(attempts=2, holder=holder))
        assert await store.list_tool_effects(run_id='run-1') == [an_end()]

    @pytest.mark.parametrize('ended', [{}, {'status': 'failed', 'outcome': 'error', 'error': 'no'}])
    async def test_next_attempt_takes_over_what_is_not_completed(self, store: StepStore, ended: dict[str, str]) -> None:
        await store.record_tool_effect(a_start(**ended))
        await store.record_tool_effect(a_start(attempts=2, holder='worker-b', started_at=LATER))
        assert await store.list_tool_effects(run_id='run-1') == [
            a_start(attempts=2, holder='worker-b', started_at=LATER)
        ]

    async def test_replaced_attempt_cannot_write_any_more(self, store: StepStore) -> None:
        taken = a_start(attempts=2, holder='worker-b')
        await store.record_tool_effect(a_start())
        await store.record_tool_effect(taken)
        for late in (an_end(), a_start(), a_start(idempotency_key='note')):
            with pytest.raises(ToolEffectConflictError):
                await store.record_tool_effect(late)
        assert await store.list_tool_effects(run_id='run-1') == [taken]

    async def test_attempt_that_skips_one_does_not_take_over(self, store: StepStore) -> None:
        await store.record_tool_effect(a_start())
        with pytest.raises(ToolEffectConflictError):
            await store.record_tool_effect(a_start(attempts=3, holder='worker-b'))
        assert await store.list_tool_effects(run_id='run-1') == [a_start()]

    async def test_notes_of_a_tool_survive_the_end_and_the_next_attempt(self, store: StepStore) -> None:
        await store.record_tool_effect(a_start())
        await store.record_tool_effect(a_start(idempotency_key='order-7', effect_summary='charged 3'))
        await store.record_tool_effect(a_start())
        await store.record_tool_effect(a_start(attempts=2, holder='worker-b', effect_summary='charged 4'))
        await store.record_tool_effect(an_end(attempts=2, holder='worker-b'))
        assert await store.list_tool_effects(run_id='run-1') == [
            an_end(attempts=2, holder='worker-b', idempotency_key='order-7', effect_summary='charged 4')
        ]

    async def test_decision_of_a_person_takes_over_and_stands(self, store: StepStore) -> None:
        await store.record_tool_effect(a_start(effect_summary='charged 3'))
        await resolve_as_completed(store, run_id='run-1', tool_call_id='call-1', value='paid', by='ada')
        (decided,) = await store.list_tool_effects(run_id='run-1')
        assert (decided.status, decided.outcome, decided.attempts) == ('completed', 'returned', 2)
        assert decided.effect_summary == 'charged 3'
        assert decided.holder.startswith(f'{PERSON_HOLDER_PREFIX}ada:')
        assert replay(decided.value or b'') == 'paid'
        assert await store.list_unresolved_tool_effects(run_id='run-1') == []
        (event,) = await store.list_events(run_id='run-1')
        assert (event.kind, event.metadata[RESOLVED_BY_METADATA_KEY]) == ('tool_call_completed', 'ada')
        for late in (an_end(), a_start(attempts=2, holder='worker-b')):
            with pytest.raises(ToolEffectConflictError):
                await store.record_tool_effect(late)
        assert await store.list_tool_effects(run_id='run-1') == [decided]

    async def test_decision_that_nothing_happened_is_kept_as_the_tools_failure(self, store: StepStore) -> None:
        await store.record_tool_effect(a_start())
        await resolve_as_failed(store, run_id='run-1', tool_call_id='key-1', reason='not charged', by='ada')
        (decided,) = await store.list_tool_effects(run_id='run-1')
        assert (decided.status, decided.outcome) == ('failed', 'failed')
        with pytest.raises(ToolFailed, match='not charged'):
            replay(decided.value or b'')

    async def test_only_one_unresolved_call_is_decided_about_and_once(self, store: StepStore) -> None:
        await store.commit([a_start(call_key='key-1'), a_start(call_key='key-2'), an_end(call_key='key-3')])
        for wrong in ('call-1', 'key-3', 'call-9'):
            with pytest.raises(EffectNotUnresolvedError):
                await resolve_as_failed(store, run_id='run-1', tool_call_id=wrong, reason='no', by='ada')
        first, second = (
            resolve_as_completed(store, run_id='run-1', tool_call_id='key-2', value=number, by='ada')
            for number in (1, 2)
        )
        results = await asyncio.gather(first, second, return_exceptions=True)
        # Who is late finds it decided, at whichever of the two looks.
        lost = [result for result in results if isinstance(result, BaseException)]
        assert [type(error) in (ToolEffectConflictError, EffectNotUnresolvedError) for error in lost] == [True]
        assert [effect.call_key for effect in await store.list_unresolved_tool_effects(run_id='run-1')] == ['key-1']

    # --- conflicts ---

    async def test_conflict_says_what_the_ledger_holds(self, store: StepStore) -> None:
        await store.record_tool_effect(an_end(effect_summary='charged 3'))
        (held,) = await store.list_tool_effects(run_id='run-1')
        with pytest.raises(ToolEffectConflictError) as caught:
            await store.record_tool_effect(a_start(attempts=2))
        assert isinstance(caught.value, HarnessError)
        assert caught.value.current == held
        assert caught.value.current.value == b'"ok"'

    async def test_conflict_writes_nothing_of_its_batch(self, store: StepStore) -> None:
        await store.record_tool_effect(an_end())
        with pytest.raises(ToolEffectConflictError):
            await store.commit(
                [
                    a_run(),
                    an_event(idempotency_key='key'),
                    a_start(call_key='key-2'),
                    a_snapshot(turns(2)),
                    a_start(attempts=2),
                    a_start(call_key='key-3'),
                ]
            )
        assert await store.get_run(run_id='run-1') is None
        assert await store.list_events(run_id='run-1') == []
        assert await store.list_snapshots(run_id='run-1') == []
        assert await store.list_tool_effects(run_id='run-1') == [an_end()]
        await store.append_event(an_event(idempotency_key='key'))
        assert len(await store.list_events(run_id='run-1')) == 1

    async def test_entries_of_one_call_in_a_batch_follow_each_other(self, store: StepStore) -> None:
        await store.commit([a_start(effect_summary='charged 3'), an_end(started_at=LATER)])
        assert await store.list_tool_effects(run_id='run-1') == [an_end(effect_summary='charged 3')]
        with pytest.raises(ToolEffectConflictError):
            await store.commit([an_end(call_key='key-2'), a_start(call_key='key-2', attempts=2)])
        assert [effect.call_key for effect in await store.list_tool_effects(run_id='run-1')] == ['key-1']

    # --- identity ---

    async def test_calls_with_one_id_are_kept_apart_by_their_keys(self, store: StepStore) -> None:
        first = an_end(call_key='key-1', step_index=1, value=b'1')
        second = a_start(call_key='key-2', step_index=2)
        await store.record_tool_effect(first)
        await store.record_tool_effect(second)
        assert await store.list_tool_effects(run_id='run-1') == [first, second]
        assert await store.get_tool_effect(run_id='run-1', tool_call_id='call-1') == second
        ended = an_end(call_key='key-2', step_index=2, value=b'2')
        await store.record_tool_effect(ended)
        assert await store.list_tool_effects(run_id='run-1') == [first, ended]

    async def test_empty_ids_are_kept_apart_by_their_keys(self, store: StepStore) -> None:
        effects = [a_start(tool_call_id='', call_key=f'key-{index}') for index in range(3)]
        for effect in effects:
            await store.record_tool_effect(effect)
        assert await store.list_tool_effects(run_id='run-1') == effects
        assert await store.get_tool_effect(run_id='run-1', tool_call_id='') == effects[-1]

    async def test_call_without_a_key_is_known_by_its_id(self, store: StepStore) -> None:
        await store.record_tool_effect(a_start(call_key=None))
        await store.record_tool_effect(a_start(call_key=None, tool_call_id='call-2'))
        await store.record_tool_effect(an_end(call_key=None))
        assert await store.list_tool_effects(run_id='run-1') == [
            an_end(call_key=None),
            a_start(call_key=None, tool_call_id='call-2'),
        ]

    async def test_call_with_a_key_is_another_than_the_one_known_by_its_id(self, store: StepStore) -> None:
        effects = [an_end(call_key=None), a_start(call_key=''), a_start(call_key='call-1')]
        for effect in effects:
            await store.record_tool_effect(effect)
        assert await store.list_tool_effects(run_id='run-1') == effects

    async def test_keys_of_calls_that_look_alike_are_kept_apart(self, store: StepStore) -> None:
        keys = ['key', 'Key', 'key ', 'key\x00', 'k\u0065\u0301y', 'k\u00e9y', '\ud800', LONG_KEY, LONG_KEY + 'x']
        for key in keys:
            await store.record_tool_effect(a_start(call_key=key))
        assert [effect.call_key for effect in await store.list_tool_effects(run_id='run-1')] == keys

    async def test_calls_of_two_runs_with_one_id_are_independent(self, store: StepStore) -> None:
        await store.record_tool_effect(an_end('run-1'))
        await store.record_tool_effect(a_start('run-2', holder='worker-b'))
        assert await store.list_tool_effects(run_id='run-1') == [an_end('run-1')]
        assert await store.list_tool_effects(run_id='run-2') == [a_start('run-2', holder='worker-b')]

    async def test_newest_entry_is_the_one_recorded_last_not_the_one_changed_last(self, store: StepStore) -> None:
        await store.record_tool_effect(a_start(call_key='key-1'))
        await store.record_tool_effect(a_start(call_key='key-2', started_at=NOON - timedelta(hours=1)))
        await store.record_tool_effect(an_end(call_key='key-1'))
        read = await store.get_tool_effect(run_id='run-1', tool_call_id='call-1')
        assert read is not None
        assert read.call_key == 'key-2'

    # --- listing ---

    async def test_entries_are_in_the_order_in_which_the_calls_were_first_recorded(self, store: StepStore) -> None:
        keys = ['m', 'z', 'a', 'Z', '1']
        for index, key in enumerate(keys):
            await store.record_tool_effect(a_start(call_key=key, started_at=NOON - timedelta(hours=index)))
        numbers = [effect.seq for effect in await store.list_tool_effects(run_id='run-1')]
        for key in reversed(keys):
            await store.record_tool_effect(an_end(call_key=key))
        read = await store.list_tool_effects(run_id='run-1')
        assert [effect.call_key for effect in read] == keys
        assert [effect.seq for effect in read] == numbers

    async def test_number_of_an_entry_is_the_stores_own(self, store: StepStore) -> None:
        await store.record_tool_effect(a_start(call_key='key-1', seq=900))
        await store.record_tool_effect(a_start(call_key='key-2', seq=5))
        await store.record_tool_effect(an_end(call_key='key-1', seq=7))
        assert [effect.seq for effect in await store.list_tool_effects(run_id='run-1')] == [1, 2]

    async def test_unresolved_are_the_entries_that_nobody_ended(self, store: StepStore) -> None:
        await store.commit(
            [
                a_start(call_key='announced', attempts=0, holder=''),
                a_start(call_key='started'),
                an_end(call_key='completed'),
                an_end(call_key='failed for good', status='failed', outcome='failed'),
                an_end(call_key='failed', status='failed', outcome='error'),
                a_start('run-2', call_key='elsewhere'),
            ]
        )
        await store.record_tool_effect(
            a_start(call_key='failed', attempts=2, holder='worker-b', effect_summary='second')
        )
        read = await store.list_unresolved_tool_effects(run_id='run-1')
        assert [effect.call_key for effect in read] == ['announced', 'started', 'failed']
        assert read[-1].effect_summary == 'second'
        await store.record_tool_effect(an_end(call_key='started'))
        read = await store.list_unresolved_tool_effects(run_id='run-1')
        assert [effect.call_key for effect in read] == ['announced', 'failed']
