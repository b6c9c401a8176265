"""What only a store of files has: lines cut short, damage, journals, locks, processes, names of folders."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import json
import logging
import os
import random
import stat
import time
from collections.abc import Generator
from contextlib import contextmanager
from itertools import combinations
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.messages import ModelMessagesTypeAdapter

from harness_temporal.errors import StoreCorruptionError, StoreUnavailableError
from harness_temporal.records import Record
from harness_temporal.stores.file import FileStepStore, folders
from harness_temporal.stores.file.folders import Folder, folder_name
from harness_temporal.stores.file.journal import Journal
from harness_temporal.testing.samples import (
    a_response,
    a_run,
    a_snapshot,
    a_start,
    an_end,
    an_event,
    an_extension,
    asks,
    turns,
)
from tests.forks import FORKS, import_before_forks

PROCESSES, ROUNDS = 8, 10
KILLS = 30
import_before_forks(__name__)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / 'runs'


def _paths(directory: Path, pattern: str) -> list[Path]:
    return sorted(directory.glob(pattern))


@contextmanager
def _flock(path: Path) -> Generator[None]:
    with open(path, 'rb') as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


# --- lines ---


@pytest.mark.parametrize('kept', [1, 20, -1])
async def test_last_line_that_was_cut_short_is_dropped_with_a_warning_and_spoils_nothing(
    directory: Path, kept: int, caplog: pytest.LogCaptureFixture
) -> None:
    store = FileStepStore(directory)
    for index in range(3):
        await store.commit([an_event(step_index=index), a_start(call_key=f'{index}')])
    for name in ('events.jsonl', 'tool_effects.jsonl'):
        path = directory / 'run-1' / name
        *lines, last, _ = path.read_bytes().split(b'\n')
        path.write_bytes(b'\n'.join([*lines, last[:kept]]))
    for reader in (store, FileStepStore(directory)):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            assert [event.step_index for event in await reader.list_events(run_id='run-1')] == [0, 1]
            assert [effect.call_key for effect in await reader.list_tool_effects(run_id='run-1')] == ['0', '1']
        assert [record.getMessage() for record in caplog.records] == [
            f'{directory / "run-1" / name}: dropped line 3, which was cut short.'
            for name in ('events.jsonl', 'tool_effects.jsonl')
        ]
    await store.commit([an_event(step_index=7), a_start(call_key='7')])
    caplog.clear()
    for reader in (store, FileStepStore(directory)):
        assert [event.step_index for event in await reader.list_events(run_id='run-1')] == [0, 1, 7]
        assert [effect.call_key for effect in await reader.list_tool_effects(run_id='run-1')] == ['0', '1', '7']
    assert not caplog.records


@pytest.mark.parametrize('name', ['events.jsonl', 'tool_effects.jsonl', 'snapshot-keys.jsonl'])
@pytest.mark.parametrize('damage', [b'\x00', b'[]', b'{"seq": 2', b'\xff\xfe', b''])
async def test_damaged_line_in_the_middle_is_an_error_that_says_where(
    directory: Path, name: str, damage: bytes
) -> None:
    store = FileStepStore(directory)
    for _ in range(3):
        await store.commit([an_event(), a_start(call_key='a'), an_end(call_key='a'), a_snapshot(turns(2))])
    path = directory / 'run-1' / name
    lines = path.read_bytes().split(b'\n')
    path.write_bytes(b'\n'.join([lines[0], damage, *lines[2:]]))
    for damaged in (store, FileStepStore(directory)):
        with pytest.raises(StoreCorruptionError, match=f'{path}, line 2'):
            await damaged.append_event(an_event())
    if name == 'events.jsonl':
        with pytest.raises(StoreCorruptionError, match=f'{path}, line 2'):
            await store.list_events(run_id='run-1')
    if name == 'tool_effects.jsonl':
        with pytest.raises(StoreCorruptionError, match=f'{path}, line 2'):
            await store.list_tool_effects(run_id='run-1')


# --- snapshots ---


async def test_snapshot_file_that_holds_its_messages_is_read(directory: Path) -> None:
    folder = directory / 'run-1' / 'snapshots'
    folder.mkdir(parents=True)
    for seq, state in ((3, None), (12, 'interrupted')):
        fields: dict[str, Any] = {
            'run_id': 'run-1',
            'step_index': seq,
            'conversation_id': None,
            'agent_name': 'librarian \uf8ff0041',
            'timestamp': '2026-03-01T12:00:00Z',
            'messages': json.loads(ModelMessagesTypeAdapter.dump_json(turns(seq))),
        }
        (folder / f'{seq}.json').write_text(json.dumps(fields if state is None else {**fields, 'state': state}))
    store = FileStepStore(directory, max_snapshots_per_run=1)
    old, new = await store.list_snapshots(run_id='run-1', include_interrupted=True)
    assert (old.seq, old.state, old.messages, old.agent_name) == (3, 'complete', turns(3), 'librarian \uf8ff0041')
    assert (new.seq, new.state, new.messages) == (12, 'interrupted', turns(12))
    await store.save_snapshot(a_snapshot(turns(13), state='interrupted'))
    read = await store.list_snapshots(run_id='run-1', include_interrupted=True)
    assert [snapshot.seq for snapshot in read] == [3, 13]
    await store.save_snapshot(a_snapshot(turns(14)))
    assert [path.name for path in folder.iterdir()] == ['14.json']


async def test_each_message_is_on_disk_once(directory: Path) -> None:
    store = FileStepStore(directory)
    for length in range(1, 21):
        await store.save_snapshot(a_snapshot(turns(length), step_index=length))
        await store.save_snapshot(a_snapshot(turns(length), 'fork', step_index=length))
    assert len(_paths(directory, 'messages/[0-9a-f]*')) == 20
    assert max(path.stat().st_size for path in _paths(directory, '*/snapshots/*.json')) < 400


@pytest.mark.parametrize('damage', ['removed', 'emptied', 'changed'])
async def test_damaged_message_is_an_error_that_names_its_file(directory: Path, damage: str) -> None:
    store = FileStepStore(directory)
    await store.save_snapshot(a_snapshot([asks('a'), asks('b')]))
    (path,) = [path for path in _paths(directory, 'messages/*') if b'"b"' in path.read_bytes()]
    content = path.read_bytes()
    path.unlink()
    if damage != 'removed':
        path.write_bytes(b'' if damage == 'emptied' else content.replace(b'"b"', b'"c"'))
    with pytest.raises(StoreCorruptionError, match=str(path)):
        await store.latest_snapshot(run_id='run-1')


@pytest.mark.parametrize('content', ['', '[]', '{"run_id": "run-1"', '{"run_id": "run-1", "step_index": 1}'])
async def test_damaged_snapshot_file_is_an_error_that_names_it(directory: Path, content: str) -> None:
    store = FileStepStore(directory)
    await store.save_snapshot(a_snapshot(turns(2)))
    (path,) = _paths(directory, '*/snapshots/*.json')
    path.write_text(content)
    with pytest.raises(StoreCorruptionError, match=str(path)):
        await store.latest_snapshot(run_id='run-1')


# --- what a writer that died left ---


class Died(Exception):
    pass


BATCHES: dict[str, list[Record]] = {
    'one run': [a_start(), an_event(), a_snapshot(turns(4)), a_response(body=b'new'), an_event()],
    'a new run': [a_run('run-2'), an_event('run-2')],
    'several runs': [a_run('run-2'), an_event('run-2'), an_event(), a_start('run-3'), a_snapshot(turns(4), 'run-2')],
}


@pytest.mark.parametrize('batch', BATCHES.values(), ids=BATCHES)
@pytest.mark.parametrize('first_reader', ['list_runs', 'list_events', 'commit'])
async def test_batch_of_a_writer_that_died_is_whole_or_absent(
    tmp_path: Path, batch: list[Record], first_reader: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ('fsync', 'fdatasync'):  # the system lives on
        monkeypatch.setattr(os, name, lambda _: None)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    before: list[Record] = [a_run(), an_event(), a_snapshot(turns(2)), a_response(body=b'old')]
    whole = FileStepStore(tmp_path / 'whole', max_snapshots_per_run=1)
    await whole.commit(before)
    absent = await _counts(whole)
    await whole.commit(batch)
    expected = [absent, await _counts(whole)]
    outcomes: list[int] = []
    for step in range(200):
        store = FileStepStore(tmp_path / f'{step}', max_snapshots_per_run=1)
        await store.commit(before)
        with monkeypatch.context() as patch:
            _die_at(step, patch)
            try:
                await store.commit(batch)
            except Died:
                pass
            else:
                break
        if step % 3:
            store = FileStepStore(tmp_path / f'{step}', max_snapshots_per_run=1)
        if first_reader == 'list_runs':
            await store.list_runs()
        elif first_reader == 'commit':
            await store.append_event(an_event(error='after'))
        counts = await _counts(store)
        if first_reader == 'commit':
            counts[1] -= 1
        outcomes.append(expected.index(counts))
    else:
        pytest.fail('the batch never ended')
    # Once it has happened, it has happened.
    assert outcomes == sorted(outcomes)
    assert set(outcomes) == {0, 1}


async def _counts(store: FileStepStore) -> list[Any]:
    runs = ('run-1', 'run-2', 'run-3')
    response = await store.get_model_response(run_id='run-1', key='request-1')
    return [
        response and response.body,
        *[len(await store.list_events(run_id=run_id)) for run_id in runs],
        *[len(await store.list_tool_effects(run_id=run_id)) for run_id in runs],
        *[[len(item.messages) for item in await store.list_snapshots(run_id=run_id)] for run_id in runs],
        [run.run_id for run in await store.list_runs()],
    ]


def _die_at(step: int, patch: pytest.MonkeyPatch) -> None:
    """Let the writer die half way through one of its changes to files (odd steps), or before the next one."""
    left = (step + 1) // 2

    def dying(method: Any, half: Any = None) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0 and half is not None and step % 2:
                left -= 1
                half(*args)
                raise Died
            if left < 0:
                raise Died
            return method(*args, **options)

        return call

    def half_a_journal(journal: Journal, changes: Any) -> None:
        real_write(journal, changes)
        descriptor = journal._descriptor  # pyright: ignore[reportPrivateUsage]
        os.ftruncate(descriptor, os.fstat(descriptor).st_size // 2)

    def half_a_line(folder: Folder, name: str, offset: int, data: bytes) -> None:
        real_extend(folder, name, offset, data[: len(data) // 2])

    real_write, real_extend = Journal.write, Folder.extend
    patch.setattr(Journal, 'write', dying(Journal.write, half_a_journal))
    patch.setattr(Journal, 'clear', dying(Journal.clear))
    patch.setattr(Folder, 'extend', dying(Folder.extend, half_a_line))
    patch.setattr(Folder, 'replace', dying(Folder.replace))
    patch.setattr(Folder, 'remove', dying(Folder.remove))
    patch.setattr(Folder, 'flush', dying(Folder.flush))


async def test_journal_that_comes_back_after_a_loss_of_power_takes_nothing_back(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FileStepStore(directory)
    journal = directory / 'run-1' / '.journal'
    with monkeypatch.context() as patch:
        patch.setattr(Journal, 'clear', lambda *_, **__: None)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
        await store.commit([an_event(), a_start()])
    content = journal.read_bytes()
    await store.append_event(an_event(error='later'))
    assert content
    assert journal.read_bytes() == b''
    journal.write_bytes(content)
    assert [event.error for event in await FileStepStore(directory).list_events(run_id='run-1')] == [None, 'later']
    assert await store.list_tool_effects(run_id='run-1') == [a_start()]
    assert journal.read_bytes() == b''


def _write_until_killed(directory: Path, done: Connection) -> None:
    asyncio.run(_write_on(directory, done))


async def _write_on(directory: Path, done: Connection) -> None:
    store = FileStepStore(directory, max_snapshots_per_run=3)
    index = len(await store.list_events(run_id='main')) // 2
    while True:
        batch: list[Record] = [
            a_start('main', call_key=f'{index}'),
            an_event('main', step_index=index),
            an_extension(turns(index + 1), base_length=index, run_id='main', step_index=index + 1),
            a_response('main', key=f'{index}'),
            an_event('main', step_index=index),
        ]
        if index % 3 == 0:
            batch += [a_run(f'sub-{index}'), an_event('all', step_index=index)]
        await store.commit(batch)
        done.send(index)
        index += 1


async def _check_consistent(directory: Path, acknowledged: int) -> int:
    """Check what is there after a kill, and return how many batches there are."""
    store = FileStepStore(directory, max_snapshots_per_run=3)
    runs = await store.list_runs()
    events = await store.list_events(run_id='main')
    effects = await store.list_tool_effects(run_id='main')
    snapshots = await store.list_snapshots(run_id='main')
    batches = len(effects)
    assert batches in (acknowledged + 1, acknowledged + 2)
    assert [event.step_index for event in events] == [index // 2 for index in range(2 * batches)]
    assert [effect.call_key for effect in effects] == [f'{index}' for index in range(batches)]
    assert [snapshot.messages for snapshot in snapshots] == [
        turns(length) for length in range(max(1, batches - 2), batches + 1)
    ]
    numbers = sorted(record.seq or 0 for record in (*events, *effects, *snapshots))
    assert len(set(numbers)) == len(numbers)
    assert numbers[-1] == 4 * batches
    assert await store.get_model_response(run_id='main', key=f'{batches - 1}') is not None
    assert [run.run_id for run in runs] == [f'sub-{index}' for index in range(0, batches, 3)]
    assert [event.step_index for event in await store.list_events(run_id='all')] == list(range(0, batches, 3))
    return batches


async def test_every_kill_of_a_writer_leaves_a_consistent_store(directory: Path) -> None:
    chance = random.Random(5)
    acknowledged = -1
    for _ in range(KILLS):
        ours, theirs = FORKS.Pipe(duplex=False)
        writer = FORKS.Process(target=_write_until_killed, args=(directory, theirs))
        writer.start()
        theirs.close()
        acknowledged = ours.recv()
        time.sleep(chance.uniform(0, 0.01))  # noqa: ASYNC251
        writer.kill()
        writer.join()
        try:
            while True:
                acknowledged = ours.recv()
        except EOFError:
            ours.close()
        acknowledged = await _check_consistent(directory, acknowledged) - 1


# --- several processes ---


def _append_many(directory: Path, process: int) -> None:
    async def append() -> None:
        store = FileStepStore(directory)
        for index in range(ROUNDS):
            await store.commit(
                [an_event('shared', step_index=process), a_start('shared', call_key=f'{process}.{index}')]
            )
            await store.commit([a_run(f'run-{process}-{index}'), an_event(f'run-{process}-{index}')])
            await store.save_snapshot(a_snapshot(turns(index + 1), 'shared', idempotency_key=f'{index}'))

    asyncio.run(append())


async def test_processes_that_write_at_once_lose_nothing(directory: Path) -> None:
    writers = [FORKS.Process(target=_append_many, args=(directory, index)) for index in range(PROCESSES)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0] * PROCESSES
    store = FileStepStore(directory)
    events = await store.list_events(run_id='shared')
    effects = await store.list_tool_effects(run_id='shared')
    snapshots = await store.list_snapshots(run_id='shared')
    assert len(events) == len(effects) == PROCESSES * ROUNDS
    assert len(snapshots) == ROUNDS
    numbers = sorted(record.seq or 0 for record in (*events, *effects, *snapshots))
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(await store.list_runs()) == PROCESSES * ROUNDS


@pytest.mark.parametrize('locked', ['run-1/.journal', '.journal'])
async def test_lock_that_is_held_for_too_long_is_an_error_that_names_it(
    directory: Path, locked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FileStepStore(directory)
    await store.commit([a_run(), an_event()])
    monkeypatch.setattr(folders, 'LOCK_SECONDS', 0.05)
    with _flock(directory / locked), pytest.raises(StoreUnavailableError, match=str(directory / locked)):
        await store.commit([a_run(), an_event()])
    await store.commit([a_run(), an_event()])
    assert len(await store.list_events(run_id='run-1')) == 2


# --- the system says no ---


@pytest.mark.parametrize('code', [errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EIO, errno.EMFILE])
@pytest.mark.parametrize('call', ['open', 'pwrite', 'fsync', 'fdatasync', 'replace'])
async def test_error_of_the_system_is_unavailability_and_the_batch_can_be_written_again(
    directory: Path, code: int, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any, **options: Any) -> Any:
        raise OSError(code, os.strerror(code))

    store = FileStepStore(directory)
    await store.commit([a_run(), an_event()])
    batch: list[Record] = [an_event(idempotency_key='key'), a_start(), a_snapshot(turns(2), idempotency_key='key')]
    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        with pytest.raises(StoreUnavailableError, match=str(directory)):
            await store.commit(batch)
    await store.commit(batch)
    assert len(await store.list_events(run_id='run-1')) == 2
    assert await store.list_tool_effects(run_id='run-1') == [a_start()]
    assert [item.messages for item in await store.list_snapshots(run_id='run-1')] == [turns(2)]


async def test_file_in_the_place_of_the_folder_is_an_error_of_this_package(tmp_path: Path) -> None:
    (tmp_path / 'runs').write_text('x')
    for path in (tmp_path / 'runs', tmp_path / 'runs' / 'below'):
        store = FileStepStore(path)
        with pytest.raises(StoreCorruptionError, match=str(path)):
            await store.append_event(an_event())
        with pytest.raises(StoreCorruptionError, match=str(path)):
            await store.list_runs()


async def test_reading_makes_nothing(directory: Path) -> None:
    store = FileStepStore(directory)
    assert await store.list_runs() == []
    assert await store.list_events(run_id='run-1') == []
    assert not _paths(directory.parent, '*')
    await store.append_event(an_event())
    assert await store.latest_snapshot(run_id='run-2') is None
    assert not (directory / 'run-2').exists()


# --- names, links, modes ---

LOOK_ALIKES = [
    'con', 'CON', 'Con', 'con.txt', 'COM1', 'com1', 'nul', 'messages', 'media', 'MEDIA', 'a', 'A', 'a.', 'a..', 'A.',
    '.a', '.A', '...', '.journal', '.registered', 'a:b', 'a.b', 'a_b', 'x' * 200, 'X' * 200, 'X' * 199 + 'x', '-rf',
]  # fmt: skip


def test_ids_never_share_a_folder_whatever_the_file_system_takes_for_the_same() -> None:
    names = {run_id: folder_name(run_id) for run_id in LOOK_ALIKES}
    for one, other in combinations(names.values(), 2):
        assert one.casefold() != other.casefold()
    for name in names.values():
        assert name.isascii()
        assert name == name.lower()
        assert len(name) <= 200
        assert not name.startswith('.')
        assert not name.endswith('.')
        assert not set(name) & set('<>:"/\\|?*')
        assert name.partition('.')[0] not in ('con', 'com1', 'nul', 'messages', 'media')
    assert folder_name('0193c7a5-8f6e.worker_2') == '0193c7a5-8f6e.worker_2'


async def test_look_alikes_are_kept_apart_on_disk(directory: Path) -> None:
    store = FileStepStore(directory)
    for run_id in LOOK_ALIKES:
        await store.commit([a_run(run_id), an_event(run_id, error=run_id), a_snapshot(turns(1), run_id)])
    assert [run.run_id for run in await FileStepStore(directory).list_runs()] == LOOK_ALIKES
    for run_id in LOOK_ALIKES:
        assert [event.error for event in await store.list_events(run_id=run_id)] == [run_id]


async def test_links_are_not_followed(tmp_path: Path, directory: Path) -> None:
    outside = tmp_path / 'outside'
    outside.mkdir()
    (outside / 'events.jsonl').write_text('{}\n')
    store = FileStepStore(directory)
    await store.append_event(an_event('run-2'))
    (directory / 'run-1').symlink_to(outside)
    (directory / 'run-2' / 'tool_effects.jsonl').symlink_to(outside / 'effects')
    for record in (an_event(), a_start('run-2')):
        with pytest.raises(StoreCorruptionError, match=str(directory)):
            await store.commit([record])
    with pytest.raises(StoreCorruptionError, match=str(directory / 'run-1')):
        await store.list_events(run_id='run-1')
    assert [path.name for path in outside.iterdir()] == ['events.jsonl']
    assert await store.list_runs() == []


async def test_store_may_be_behind_a_link(tmp_path: Path, directory: Path) -> None:
    await FileStepStore(directory).append_event(an_event())
    (tmp_path / 'link').symlink_to(directory)
    await FileStepStore(tmp_path / 'link').append_event(an_event())
    assert len(await FileStepStore(directory).list_events(run_id='run-1')) == 2


async def test_files_are_their_owners_alone(directory: Path) -> None:
    old = os.umask(0)
    try:
        store = FileStepStore(directory)
        await store.commit([a_run(), an_event(), a_snapshot(turns(2)), a_start(), a_response()])
    finally:
        os.umask(old)
    for path in (directory, *_paths(directory, '**/*')):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path
    assert {path.relative_to(directory / 'run-1').as_posix() for path in _paths(directory, 'run-1/**/*')} == {
        '.journal', 'run.json', 'events.jsonl', 'tool_effects.jsonl', 'snapshot-keys.jsonl', 'model-response.json',
        'snapshots', 'snapshots/3.json',
    }  # fmt: skip


async def test_no_file_stays_open(directory: Path) -> None:
    store = FileStepStore(directory)
    await store.commit([a_run(), an_event(), a_snapshot(turns(2))])
    before = len(os.listdir('/proc/self/fd'))
    for index in range(100):
        await store.commit([a_run(f'run-{index + 2}'), a_snapshot(turns(2), f'run-{index}')])
        await store.latest_snapshot(run_id=f'run-{index}')
    assert len(os.listdir('/proc/self/fd')) <= before


def test_folder_that_goes_before_its_lock_is_taken_is_told_apart(tmp_path: Path) -> None:
    """A collector goes on when a run is deleted between its looking and its locking."""
    with Folder.made_at(folders.STORE, tmp_path) as root, root.make('run') as run:
        root.remove_within('run')
        with pytest.raises(folders.FolderRemovedError), run.locked('.journal'):
            raise AssertionError('there was nothing to lock')
