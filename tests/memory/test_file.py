"""What only files have: persons who edit them, links, damage, and writers that died between two files."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from harness_temporal.errors import NoteConflictError, NoteTooLargeError, StoreCorruptionError
from harness_temporal.memory import MAIN, Append, Delete, Edit, FileMemoryStore, Glance, Note, Notebook, Replace, file
from harness_temporal.memory.notes import NOTE_BYTES, OPERATIONS_KEPT, revision_of
from harness_temporal.stores.file.folders import Folder
from harness_temporal.stores.file.journal import Change, apply

BOOK = Notebook('Ann & Co', 'ann@example.com')


@pytest.fixture
def store(tmp_path: Path) -> FileMemoryStore:
    return FileMemoryStore(tmp_path / 'memory')


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The notebook's folder, made by hand."""
    path = tmp_path / 'memory' / file.folder_name(BOOK.agent) / file.folder_name(BOOK.namespace)
    path.mkdir(parents=True)
    return path


async def edit(store: FileMemoryStore, edit: Edit, key: str = 'call-1', note: str = MAIN) -> str:
    return await store.edit(BOOK, note, edit, key=key)


async def test_a_person_finds_and_edits_the_notes(store: FileMemoryStore, folder: Path) -> None:
    await edit(store, Append('likes tea'))
    assert folder.parent.name.startswith('ann-co-')
    assert folder.name.startswith('ann-example-com-')
    note = folder / 'main.md'
    assert note.read_bytes() == b'likes tea'

    note.write_bytes(b'likes coffee\r\n')
    (folder / 'plan.md').write_text('by hand')
    for ignored in ('Shopping List.md', 'draft.txt', '.hidden.md'):
        (folder / ignored).write_text('not a note')
    assert await store.read(BOOK, MAIN) == Note(MAIN, 'likes coffee\r\n')
    assert await store.glance(BOOK, name=MAIN, max_bytes=99, max_names=9) == Glance(
        'likes coffee\r\n', False, ('plan',), False
    )
    await edit(store, Replace('coffee', 'milk'), 'call-2')
    assert note.read_bytes() == b'likes milk\r\n'
    note.unlink()
    assert [page async for page in store.pages(BOOK)] == [[Note('plan', 'by hand')]]


async def test_an_edit_by_hand_is_a_conflict_for_who_read_the_note_before(store: FileMemoryStore, folder: Path) -> None:
    revision = await edit(store, Append('likes tea'))
    (folder / 'main.md').write_text('likes coffee')
    for number, stale in enumerate((Append('x', revision), Replace('likes', 'x', revision), Delete(revision))):
        with pytest.raises(NoteConflictError):
            await edit(store, stale, f'stale-{number}')
    assert (folder / 'main.md').read_text() == 'likes coffee'


async def test_a_change_is_made_to_what_a_person_saves_meanwhile(
    store: FileMemoryStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await edit(store, Append('likes tea'))
    write = file.Journal.write

    def saving_before(journal: Any, changes: Sequence[Change]) -> None:
        monkeypatch.setattr(file.Journal, 'write', write)
        (folder / 'main.md').write_text('likes coffee')
        write(journal, changes)

    monkeypatch.setattr(file.Journal, 'write', saving_before)
    await edit(store, Append('has a cat'), 'call-2')
    assert (folder / 'main.md').read_text() == 'likes coffee\nhas a cat'


# --- writers that die ---


class Died(BaseException):
    pass


def before(root: Folder, changes: Sequence[Change]) -> None:
    raise Died


def between(root: Folder, changes: Sequence[Change]) -> None:
    apply(root, changes[:1])
    raise Died


def after(root: Folder, changes: Sequence[Change]) -> None:
    apply(root, changes)
    raise Died


@pytest.mark.parametrize('die', [before, between, after])
async def test_a_writer_that_dies_leaves_an_operation_that_happens_once(
    store: FileMemoryStore, folder: Path, monkeypatch: pytest.MonkeyPatch, die: Callable[..., None]
) -> None:
    steps: list[tuple[Edit, str]] = [(Append('a'), 'a'), (Append('b'), 'a\nb'), (Replace('a', 'c'), 'c\nb')]
    for number, (change, text) in enumerate([*steps, (Delete(), None)]):
        with monkeypatch.context() as patched:
            patched.setattr(file, 'apply', die)
            with pytest.raises(Died):
                await edit(store, change, f'call-{number}')
        for _ in range(2):
            assert await edit(FileMemoryStore(folder.parents[1]), change, f'call-{number}') == revision_of(text)
        found = await store.read(BOOK, MAIN)
        assert (None if found is None else found.text) == text


@pytest.mark.parametrize('die', [before, after])
async def test_what_a_person_saves_after_a_writer_died_stays(
    store: FileMemoryStore, folder: Path, monkeypatch: pytest.MonkeyPatch, die: Callable[..., None]
) -> None:
    await edit(store, Append('likes tea'))
    with monkeypatch.context() as patched:
        patched.setattr(file, 'apply', die)
        with pytest.raises(Died):
            await edit(store, Append('has a cat'), 'call-2')
    text = (folder / 'main.md').read_text()
    (folder / 'main.md').write_text(f'{text}, not coffee')
    await edit(store, Append('has a cat'), 'call-2')
    assert (folder / 'main.md').read_text() == {
        before: 'likes tea, not coffee\nhas a cat',
        after: 'likes tea\nhas a cat, not coffee',
    }[die]


async def test_a_journal_that_was_cut_short_has_not_happened(store: FileMemoryStore, folder: Path) -> None:
    await edit(store, Append('a'))
    (folder / '.journal').write_bytes(b'0123456789abcdef\n[["", "main.md", null')
    await edit(store, Append('b'), 'call-2')
    assert (folder / 'main.md').read_text() == 'a\nb'


async def test_a_line_that_was_cut_short_is_no_operation(store: FileMemoryStore, folder: Path) -> None:
    await edit(store, Append('a'))
    with (folder / '.operations.jsonl').open('ab') as operations:
        operations.write(b'{"key": "call-2", "note": "main"')
    for _ in range(2):
        await edit(store, Append('b'), 'call-2')
    assert (folder / 'main.md').read_text() == 'a\nb'
    lines = (folder / '.operations.jsonl').read_text().splitlines()
    assert [json.loads(line)['key'] for line in lines] == ['call-1', 'call-2']


async def test_old_operations_are_forgotten(store: FileMemoryStore, folder: Path) -> None:
    line = {'note': MAIN, 'before': '', 'after': 'x'}
    lines = [json.dumps({'key': f'old-{number}', **line}) for number in range(2 * OPERATIONS_KEPT)]
    (folder / '.operations.jsonl').write_text('\n'.join(lines) + '\n')
    await edit(store, Append('a'))
    kept = [json.loads(line)['key'] for line in (folder / '.operations.jsonl').read_text().splitlines()]
    assert len(kept) == OPERATIONS_KEPT
    assert (kept[0], kept[-1]) == (f'old-{OPERATIONS_KEPT + 1}', 'call-1')
    assert await edit(store, Append('a'), kept[0]) == 'x'


async def test_a_forgotten_notebook_leaves_no_file(store: FileMemoryStore, folder: Path) -> None:
    await edit(store, Append('likes tea'))
    (folder / 'by-hand.md').write_text('x')
    leftover = folder.with_name('.removed-before')
    leftover.mkdir()
    (leftover / 'main.md').write_text('of a process that died')
    await store.forget(BOOK)
    assert os.listdir(folder.parent) == []


# --- what does not belong there ---


async def test_links_are_not_followed(store: FileMemoryStore, folder: Path, tmp_path: Path) -> None:
    outside = tmp_path / 'outside.md'
    outside.write_text('secret')
    (folder / 'main.md').symlink_to(outside)
    with pytest.raises(StoreCorruptionError, match=r'^FileMemoryStore: .*main\.md'):
        await store.read(BOOK, MAIN)
    with pytest.raises(StoreCorruptionError):
        await store.glance(BOOK, name=MAIN, max_bytes=9, max_names=9)
    with pytest.raises(StoreCorruptionError):
        await edit(store, Append('x'))
    assert outside.read_text() == 'secret'

    (tmp_path / 'elsewhere').mkdir()
    other = Notebook(BOOK.agent, 'other')
    (folder.parent / file.folder_name('other')).symlink_to(tmp_path / 'elsewhere')
    with pytest.raises(StoreCorruptionError):
        await store.edit(other, MAIN, Append('x'), key='1')
    assert os.listdir(tmp_path / 'elsewhere') == []


async def test_a_note_that_is_no_text_is_named(store: FileMemoryStore, folder: Path) -> None:
    (folder / 'main.md').write_bytes(b'caf\xe9')
    for reading in (store.read(BOOK, MAIN), store.glance(BOOK, name=MAIN, max_bytes=9, max_names=0)):
        with pytest.raises(StoreCorruptionError, match=r'main\.md'):
            await reading
    with pytest.raises(StoreCorruptionError):
        await edit(store, Append('x'))


async def test_a_note_that_a_person_made_too_large_can_be_seen_but_not_changed(
    store: FileMemoryStore, folder: Path
) -> None:
    (folder / 'main.md').write_text('x' * (NOTE_BYTES + 1))
    glance = await store.glance(BOOK, name=MAIN, max_bytes=5, max_names=0)
    assert (glance.head, glance.is_cut) == ('xxxxx', True)
    with pytest.raises(NoteTooLargeError):
        await store.read(BOOK, MAIN)
    with pytest.raises(NoteTooLargeError):
        await edit(store, Append('x'))


async def test_files_are_their_owners_alone(store: FileMemoryStore, folder: Path) -> None:
    await store.edit(Notebook('another', 'default'), MAIN, Append('x'), key='1')
    [made] = [path for path in folder.parents[1].iterdir() if path.name.startswith('another')]
    paths = [made, *made.rglob('*')]
    assert len(paths) == 5
    assert [path.stat().st_mode & 0o077 for path in paths] == [0] * len(paths)
