"""The rule over all states that matter to it, and then what it keeps of an entry."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import product
from typing import get_args

import pytest

from harness_temporal.errors import ToolEffectConflictError
from harness_temporal.ledger import advance
from harness_temporal.records import ToolEffectRecord, ToolEffectStatus
from harness_temporal.testing.samples import NOON, a_start, an_end

LATER = NOON + timedelta(minutes=1)
RANK = {'started': 0, 'failed': 1, 'completed': 2}


def entries() -> list[ToolEffectRecord]:
    return [
        a_start(
            status=status,
            attempts=attempts,
            holder=holder,
            idempotency_key=note,
            effect_summary=note and f'did {note}',
            value=None if status == 'started' else b'value',
            started_at=NOON + timedelta(seconds=attempts),
            seq=7,
        )
        for status, attempts, holder, note in product(
            get_args(ToolEffectStatus), range(4), ('a', 'b'), (None, 'one', 'two')
        )
    ]


PAIRS = list(product(entries(), entries()))


def outcome(current: ToolEffectRecord, new: ToolEffectRecord) -> str:
    try:
        result = advance(current, new)
    except ToolEffectConflictError:
        return 'conflict'
    return 'nothing' if result is None else result.status


@pytest.mark.parametrize('new', entries(), ids=lambda new: f'{new.status}-{new.attempts}-{new.holder}')
def test_absent_entry_takes_anything(new: ToolEffectRecord) -> None:
    assert advance(None, new) == new


def test_what_becomes_of_an_entry() -> None:
    """Every pair of states, by what tells them apart: the whole rule as a table."""
    table = {
        # (status now, attempts later, same holder, status written): outcome
        (now, later, same, written): outcome(
            a_start(status=now, attempts=1, holder='a'),
            a_start(status=written, attempts=1 + later, holder='a' if same else 'b', error='x'),
        )
        for now, later, same, written in product(
            get_args(ToolEffectStatus), (-1, 0, 1, 2), (True, False), get_args(ToolEffectStatus)
        )
    }
    allowed = {key: value for key, value in table.items() if value != 'conflict'}
    assert allowed == {
        # The holder of a start notes something about it, or ends it.
        ('started', 0, True, 'started'): 'started',
        ('started', 0, True, 'completed'): 'completed',
        ('started', 0, True, 'failed'): 'failed',
        # Older writes, and the same again.
        ('completed', 0, True, 'started'): 'nothing',
        ('completed', 0, True, 'completed'): 'nothing',
        ('failed', 0, True, 'started'): 'nothing',
        ('failed', 0, True, 'failed'): 'nothing',
        # The next attempt, of whatever holder, takes over what is not completed.
        ('started', 1, True, 'started'): 'started',
        ('started', 1, False, 'started'): 'started',
        ('failed', 1, True, 'started'): 'started',
        ('failed', 1, False, 'started'): 'started',
    }


def test_completed_entry_never_changes() -> None:
    completed = [(current, new) for current, new in PAIRS if current.status == 'completed']
    assert completed
    for current, new in completed:
        assert outcome(current, new) in ('nothing', 'conflict')


def test_entry_only_goes_forward() -> None:
    for current, new in PAIRS:
        if outcome(current, new) in ('nothing', 'conflict'):
            continue
        result = advance(current, new)
        assert result is not None
        assert (result.attempts, RANK[result.status]) >= (current.attempts, RANK[current.status])
        assert result.attempts - current.attempts in (0, 1)


def test_same_write_again_changes_nothing() -> None:
    for current, new in PAIRS:
        if outcome(current, new) in ('nothing', 'conflict'):
            continue
        result = advance(current, new)
        assert result is not None
        assert advance(result, new) is None
        assert advance(result, result) is None


def test_only_the_holder_of_a_start_ends_it() -> None:
    for current, new in PAIRS:
        if new.status != 'started' and outcome(current, new) not in ('nothing', 'conflict'):
            assert (new.attempts, new.holder, current.status) == (current.attempts, current.holder, 'started')


def test_of_two_holders_that_claim_from_the_same_state_the_second_is_refused() -> None:
    for current in (None, *entries()):
        attempts = 1 if current is None else current.attempts + 1
        first, second = (a_start(attempts=attempts, holder=holder) for holder in ('x', 'y'))
        try:
            claimed = advance(current, first)
        except ToolEffectConflictError:
            continue
        with pytest.raises(ToolEffectConflictError):
            advance(claimed, second)


def test_note_of_a_tool_is_never_lost() -> None:
    for current, new in PAIRS:
        if outcome(current, new) in ('nothing', 'conflict'):
            continue
        result = advance(current, new)
        assert result is not None
        assert result.idempotency_key == (new.idempotency_key or current.idempotency_key)
        assert result.effect_summary == (new.effect_summary or current.effect_summary)


def test_empty_note_is_a_note() -> None:
    result = advance(a_start(effect_summary='charged 3'), a_start(effect_summary=''))
    assert result is not None
    assert result.effect_summary == ''


def test_number_of_an_entry_stays() -> None:
    for current, new in PAIRS:
        if outcome(current, new) not in ('nothing', 'conflict'):
            result = advance(replace(current, seq=3), replace(new, seq=None))
            assert result is not None
            assert result.seq == 3


def test_end_keeps_when_the_attempt_started_and_the_next_attempt_does_not() -> None:
    ended = advance(a_start(started_at=NOON), an_end(started_at=LATER, ended_at=LATER))
    taken = advance(a_start(started_at=NOON), a_start(attempts=2, started_at=LATER))
    assert ended is not None
    assert taken is not None
    assert (ended.started_at, ended.ended_at) == (NOON, LATER)
    assert taken.started_at == LATER


def test_next_attempt_starts_without_the_end_of_the_one_before() -> None:
    failed = an_end(status='failed', outcome='error', error='no', value=b'half')
    taken = advance(failed, a_start(attempts=2, holder='b'))
    assert taken == a_start(attempts=2, holder='b')


def test_conflict_carries_the_entry_as_it_is() -> None:
    current = an_end()
    with pytest.raises(ToolEffectConflictError) as caught:
        advance(current, a_start(attempts=2))
    assert caught.value.current is current


def test_announced_call_is_taken_over_by_its_first_attempt() -> None:
    announced = a_start(attempts=0, holder='')
    assert advance(announced, a_start()) == a_start()
    with pytest.raises(ToolEffectConflictError):
        advance(announced, an_end())


def test_announcement_after_the_start_is_refused() -> None:
    with pytest.raises(ToolEffectConflictError):
        advance(a_start(), a_start(attempts=0, holder=''))
