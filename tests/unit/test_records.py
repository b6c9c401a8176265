from __future__ import annotations

from collections.abc import Callable
from dataclasses import FrozenInstanceError, replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from harness_temporal.records import EncodedHistory, utc_now
from harness_temporal.testing.samples import NOON, SEOUL, a_run, a_snapshot, a_start, an_event

NAIVE = NOON.replace(tzinfo=None)

_TIMES = pytest.mark.parametrize(
    ('make', 'field'),
    [
        (a_run, 'started_at'),
        (an_event, 'timestamp'),
        (a_snapshot, 'timestamp'),
        (a_start, 'started_at'),
        (a_start, 'ended_at'),
    ],
)


@_TIMES
def test_naive_time_is_refused_when_the_record_is_made(make: Callable[..., Any], field: str) -> None:
    with pytest.raises(ValueError, match=f'{field}` needs a time zone'):
        make(**{field: NAIVE})


@_TIMES
@pytest.mark.parametrize('zone', [UTC, SEOUL, timezone(timedelta(hours=-3, minutes=-30))])
def test_time_is_kept_as_the_same_instant_in_utc(make: Callable[..., Any], field: str, zone: timezone) -> None:
    read = getattr(make(**{field: NOON.astimezone(zone)}), field)
    assert read == NOON
    assert read.tzinfo is UTC


def test_clock_is_aware_utc() -> None:
    before, now, after = datetime.now(UTC), utc_now(), datetime.now(UTC)  # noqa: TID251
    assert before <= now <= after
    assert now.tzinfo is UTC


@pytest.mark.parametrize('make', [a_run, an_event])
def test_metadata_is_copied_from_the_caller(make: Callable[..., Any]) -> None:
    metadata = {'a': '1'}
    record = make(metadata=metadata)
    metadata['a'] = 'changed'
    assert record.metadata == {'a': '1'}


@pytest.mark.parametrize('make', [a_run, an_event])
def test_two_records_without_metadata_do_not_share_it(make: Callable[..., Any]) -> None:
    one, other = make(), make()
    one.metadata['a'] = '1'
    assert other.metadata == {}


@pytest.mark.parametrize('make', [a_run, an_event, a_snapshot, a_start])
def test_record_cannot_be_changed(make: Callable[..., Any]) -> None:
    record = make()
    with pytest.raises(FrozenInstanceError):
        record.run_id = 'other'


@pytest.mark.parametrize('make', [an_event, a_snapshot, a_start])
def test_number_is_no_part_of_what_makes_records_equal(make: Callable[..., Any]) -> None:
    assert make(seq=1) == make(seq=2)
    assert replace(make(seq=7), step_index=0).seq == 7


def test_ledger_key_is_the_call_key_or_made_of_the_call_id() -> None:
    assert a_start(call_key='key', tool_call_id='call').ledger_key == 'key'
    assert a_start(call_key='', tool_call_id='call').ledger_key == ''
    assert a_start(call_key=None, tool_call_id='call').ledger_key == 'id-call'
    assert a_start(call_key=None, tool_call_id='').ledger_key == 'id-'


def test_history_without_links_is_its_base() -> None:
    assert (EncodedHistory(None, 0, ()).head, EncodedHistory(None, 0, ()).length) == (None, 0)
    assert (EncodedHistory(b'base', 3, ()).head, EncodedHistory(b'base', 3, ()).length) == (b'base', 3)
