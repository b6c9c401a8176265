"""Registration of runs, their listing, and which ids a run may have."""

from __future__ import annotations

from datetime import timedelta

import pytest

from harness_temporal.errors import DuplicateRunError, HarnessError, InvalidRunIdError
from harness_temporal.records import Record, RunRecord
from harness_temporal.stores.protocol import StepStore
from harness_temporal.testing.base import StoreTests
from harness_temporal.testing.samples import (
    LIMA,
    NOON,
    SEOUL,
    a_response,
    a_run,
    a_snapshot,
    a_start,
    an_event,
    an_extension,
    turns,
)

INVALID_RUN_IDS = {
    'parent folder': '../x',
    'absolute path': '/etc/x',
    'path through a parent': 'a/../b',
    'backslashes': '..\\x',
    'too long': 'x' * 201,
    'NUL': 'a\x00b',
    'empty': '',
    'dot': '.',
    'two dots': '..',
    'blank': 'a b',
    'line end': 'run\n',
    'NFC': 'é',
    'NFD': 'e\u0301',
    'digit of another script': '١',
    'lone surrogate': '\ud800',
    'percent': 'a%2e',
    'query': "x' OR 1=1 --",
    'operator': '$ne',
}
VALID_RUN_IDS = {
    'one character': 'x',
    'longest': 'x' * 200,
    'every allowed character': 'AZaz09_.:-',
    'three dots': '...',
    'device name': 'CON',
    'leading dash': '-rf',
    'hidden file': '.env',
}

_invalid = pytest.mark.parametrize('run_id', INVALID_RUN_IDS.values(), ids=INVALID_RUN_IDS)


def _one_of_each(run_id: str) -> list[Record]:
    return [
        a_run(run_id),
        an_event(run_id),
        a_snapshot(turns(2), run_id),
        an_extension(turns(2), base_length=0, run_id=run_id),
        a_start(run_id),
        a_response(run_id),
    ]


class RunsConformance(StoreTests):
    """Registering and finding runs."""

    async def test_run_reads_back_with_every_field(self, store: StepStore) -> None:
        run = RunRecord(
            run_id='run-1',
            conversation_id='conversation',
            parent_run_id='parent',
            agent_name='librarian',
            metadata={'team': 'search', '': ''},
            started_at=NOON,
            registration_id='registration',
        )
        await store.register_run(run)
        assert await store.get_run(run_id='run-1') == run
        assert await store.list_runs() == [run]

    async def test_run_reads_back_with_nothing_but_its_id(self, store: StepStore) -> None:
        run = RunRecord(run_id='run-1', started_at=NOON)
        await store.register_run(run)
        assert await store.get_run(run_id='run-1') == run

    async def test_empty_text_of_a_run_is_not_none(self, store: StepStore) -> None:
        run = a_run(conversation_id='', parent_run_id='', agent_name='', registration_id='')
        await store.register_run(run)
        assert await store.get_run(run_id='run-1') == run

    async def test_unknown_run_is_none(self, store: StepStore) -> None:
        await store.register_run(a_run('run-1'))
        assert await store.get_run(run_id='run-2') is None

    async def test_empty_store_has_no_runs(self, store: StepStore) -> None:
        assert await store.list_runs() == []
        assert await store.list_runs(limit=3) == []

    @pytest.mark.parametrize(
        'metadata', [{"a') OR 1=1 --": '1'}, {'$set': '1', 'x.y': '2'}, {'$ne': 'null', '_id': ''}]
    )
    async def test_run_metadata_may_have_any_key(self, store: StepStore, metadata: dict[str, str]) -> None:
        await store.register_run(a_run(metadata=metadata))
        (read,) = await store.list_runs()
        assert read.metadata == metadata

    async def test_start_time_keeps_its_instant_to_the_microsecond(self, store: StepStore) -> None:
        started = NOON.replace(microsecond=999_999).astimezone(SEOUL)
        await store.register_run(a_run(started_at=started))
        read = await store.get_run(run_id='run-1')
        assert read is not None
        assert read.started_at == started
        assert read.started_at.utcoffset() == timedelta(0)

    # --- registration ---

    async def test_same_registration_again_changes_nothing(self, store: StepStore) -> None:
        first = a_run(registration_id='same', agent_name='first', metadata={'a': '1'})
        await store.register_run(first)
        await store.register_run(
            a_run(registration_id='same', agent_name='second', started_at=NOON + timedelta(days=1))
        )
        assert await store.list_runs() == [first]

    @pytest.mark.parametrize(
        ('first', 'second'),
        [('one', 'two'), ('one', None), (None, 'two'), (None, None), ('', None), ('one', 'One')],
    )
    async def test_another_registration_of_a_run_id_is_refused(
        self, store: StepStore, first: str | None, second: str | None
    ) -> None:
        run = a_run(registration_id=first, agent_name='first')
        await store.register_run(run)
        with pytest.raises(DuplicateRunError) as caught:
            await store.register_run(a_run(registration_id=second, agent_name='second'))
        assert caught.value.run_id == 'run-1'
        assert isinstance(caught.value, HarnessError)
        assert await store.list_runs() == [run]

    async def test_run_can_be_registered_after_its_records(self, store: StepStore) -> None:
        await store.append_event(an_event())
        assert await store.get_run(run_id='run-1') is None
        assert await store.list_runs() == []
        await store.register_run(a_run())
        assert await store.get_run(run_id='run-1') == a_run()
        assert len(await store.list_events(run_id='run-1')) == 1

    # --- listing ---

    async def test_runs_are_filtered_by_parent_and_conversation_together(self, store: StepStore) -> None:
        for name, parent, conversation in [
            ('neither', None, None),
            ('parent', 'p', None),
            ('conversation', None, 'c'),
            ('both', 'p', 'c'),
            ('others', 'q', 'd'),
        ]:
            await store.register_run(a_run(name, parent_run_id=parent, conversation_id=conversation))

        async def found(**filters: str) -> list[str]:
            return [run.run_id for run in await store.list_runs(**filters)]  # pyright: ignore[reportArgumentType]

        assert await found() == ['neither', 'parent', 'conversation', 'both', 'others']
        assert await found(parent_run_id='p') == ['parent', 'both']
        assert await found(conversation_id='c') == ['conversation', 'both']
        assert await found(parent_run_id='p', conversation_id='c') == ['both']
        assert await found(parent_run_id='p', conversation_id='d') == []
        assert await found(parent_run_id='P') == []

    @pytest.mark.parametrize('value', ["' OR 1=1 --", '%', '_', '$ne', '{"$ne": null}', 'c*', '', '\x00', '\ud800'])
    async def test_filter_is_a_value_and_nothing_else(self, store: StepStore, value: str) -> None:
        await store.register_run(a_run('run-1', parent_run_id='p', conversation_id='c'))
        await store.register_run(a_run('run-2'))
        assert await store.list_runs(conversation_id=value) == []
        assert await store.list_runs(parent_run_id=value) == []

    async def test_runs_are_ordered_by_instant_whatever_their_offset(self, store: StepStore) -> None:
        # As text, these sort the other way round.
        late = NOON.astimezone(LIMA)
        middle = (NOON - timedelta(minutes=1)).astimezone(SEOUL)
        early = NOON - timedelta(minutes=2)
        assert early.isoformat() > late.isoformat()
        await store.register_run(a_run('late', started_at=late))
        await store.register_run(a_run('middle', started_at=middle))
        await store.register_run(a_run('early', started_at=early))
        assert [run.run_id for run in await store.list_runs()] == ['early', 'middle', 'late']

    async def test_runs_a_microsecond_apart_are_in_order(self, store: StepStore) -> None:
        whole = NOON.replace(microsecond=0)
        for name, started in [
            ('c', whole + timedelta(microseconds=1)),
            ('b', whole),
            ('a', whole - timedelta(microseconds=1)),
        ]:
            await store.register_run(a_run(name, started_at=started))
        assert [run.run_id for run in await store.list_runs()] == ['a', 'b', 'c']

    async def test_runs_of_one_instant_are_in_order_of_registration(self, store: StepStore) -> None:
        names = ['m', 'z', 'a', 'Z', '1']
        for name in names:
            await store.register_run(a_run(name))
        assert [run.run_id for run in await store.list_runs()] == names
        assert [run.run_id for run in await store.list_runs(limit=2)] == ['Z', '1']

    async def test_limit_gives_the_newest_runs_oldest_first(self, store: StepStore) -> None:
        for index in (3, 0, 4, 1, 2):
            await store.register_run(
                a_run(
                    f'run-{index}', started_at=NOON + timedelta(hours=index), conversation_id='even' * (index % 2 == 0)
                )
            )

        async def found(**filters: str | int) -> list[str]:
            return [run.run_id for run in await store.list_runs(**filters)]  # pyright: ignore[reportArgumentType]

        assert await found(limit=2) == ['run-3', 'run-4']
        assert await found(limit=2, conversation_id='even') == ['run-2', 'run-4']
        assert await found(limit=9) == ['run-0', 'run-1', 'run-2', 'run-3', 'run-4']
        assert await found(limit=0) == []

    # --- nothing is shared with the caller ---

    async def test_run_changed_after_saving_is_not_changed_in_the_store(self, store: StepStore) -> None:
        run = a_run(metadata={'a': '1'})
        await store.register_run(run)
        assert isinstance(run.metadata, dict)
        run.metadata['a'] = 'changed'
        (read,) = await store.list_runs()
        assert read.metadata == {'a': '1'}

    async def test_run_changed_after_reading_is_not_changed_in_the_store(self, store: StepStore) -> None:
        await store.register_run(a_run(metadata={'a': '1'}))
        for read in (*await store.list_runs(), await store.get_run(run_id='run-1')):
            assert read is not None
            assert isinstance(read.metadata, dict)
            read.metadata['a'] = 'changed'
        (read,) = await store.list_runs()
        assert read.metadata == {'a': '1'}

    # --- run ids ---

    @pytest.mark.parametrize('run_id', VALID_RUN_IDS.values(), ids=VALID_RUN_IDS)
    async def test_valid_run_id_works_for_every_kind_of_record(self, store: StepStore, run_id: str) -> None:
        await store.commit(_one_of_each(run_id))
        assert (await store.list_runs())[0].run_id == run_id
        assert [event.run_id for event in await store.list_events(run_id=run_id)] == [run_id]
        assert [snapshot.run_id for snapshot in await store.list_snapshots(run_id=run_id)] == [run_id, run_id]
        assert [effect.run_id for effect in await store.list_tool_effects(run_id=run_id)] == [run_id]
        assert await store.get_model_response(run_id=run_id, key='request-1') == a_response(run_id)

    @_invalid
    async def test_invalid_run_id_is_refused_before_anything_is_written(self, store: StepStore, run_id: str) -> None:
        for record in _one_of_each(run_id):
            with pytest.raises(InvalidRunIdError) as caught:
                await store.commit([a_run('run-1'), an_event('run-1'), record])
            assert caught.value.run_id == run_id
        assert await store.list_runs() == []
        assert await store.list_events(run_id='run-1') == []

    @_invalid
    async def test_reading_an_impossible_run_id_finds_nothing(self, store: StepStore, run_id: str) -> None:
        await store.commit(_one_of_each('x'))
        assert await store.get_run(run_id=run_id) is None
        assert await store.list_events(run_id=run_id) == []
        assert await store.latest_snapshot(run_id=run_id) is None
        assert await store.latest_snapshot(run_id=run_id, include_interrupted=True) is None
        assert await store.list_snapshots(run_id=run_id, include_interrupted=True) == []
        assert await store.get_tool_effect(run_id=run_id, tool_call_id='call-1') is None
        assert await store.list_tool_effects(run_id=run_id) == []
        assert await store.list_unresolved_tool_effects(run_id=run_id) == []
        assert await store.get_model_response(run_id=run_id, key='request-1') is None

    @pytest.mark.parametrize(
        ('one', 'other'), [('A', 'a'), ('a_b', 'axb'), ('a.b', 'a:b'), ('run', 'run.'), ('0', '00')]
    )
    async def test_run_ids_that_look_alike_are_kept_apart(self, store: StepStore, one: str, other: str) -> None:
        await store.commit([a_run(one, agent_name='one'), an_event(one, error='one'), a_start(one, tool_name='one')])
        assert await store.get_run(run_id=other) is None
        assert await store.list_events(run_id=other) == []
        assert await store.list_tool_effects(run_id=other) == []
        await store.commit([a_run(other), an_event(other, error='other'), a_start(other, tool_name='other')])
        for run_id, name in ((one, 'one'), (other, 'other')):
            assert [event.error for event in await store.list_events(run_id=run_id)] == [name]
            assert [effect.tool_name for effect in await store.list_tool_effects(run_id=run_id)] == [name]
