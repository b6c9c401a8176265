"""The conformance suite of memory stores: what each of them keeps, refuses and finds."""

from __future__ import annotations

import asyncio
from typing import ClassVar, Protocol

import pytest
import pytest_asyncio

from harness_temporal.errors import (
    InvalidNoteNameError,
    NoteConflictError,
    NoteError,
    NoteNotFoundError,
    NoteTooLargeError,
    NotStorableError,
)
from harness_temporal.memory.notes import (
    DELETED,
    MAIN,
    NOTE_BYTES,
    OPERATIONS_KEPT,
    Append,
    Delete,
    Edit,
    Glance,
    Note,
    Notebook,
    Replace,
    revision_of,
)
from harness_temporal.memory.protocol import PAGE, MemoryStore
from harness_temporal.memory.search import search

BOOK = Notebook('librarian', 'user-1')
UNUSUAL = ('../x', '/etc/x', 'a/../b', '..\\x', 'CON', '.', '..', 'a b', "a'); --", '$where', 'a.b', 'x' * 200)
"""Names of agents and namespaces that must not mean anything else."""
ALIKE = ('A', 'a', 'a.', 'a ', '\u00e9', 'e\u0301', 'ann@example.com', 'ann-example-com', 'a:b', 'a', 'b:a')
"""Names that some systems take for one another."""
BAD_NOTE_NAMES = (
    *('', '../x', '/etc/x', 'a/../b', '..\\x', 'x' * 300, 'CON', 'a\x00b', '\u00e9', 'e\u0301', 'A', '.a', 'a.', '-a'),
    *('a ', 'a.md', '\ud800', 'a\n', '$a', 'x' * 65),
)
TEXTS = (
    '',
    ' ',
    '\n',
    'a\r\nb\rc\n',
    ' 50 % \\ _ \t',
    '\u00e9 e\u0301 \u540d \U0001f680',
    '{"kind": "x"}',
    '\u2028\x85\x0b',
)


class OpenMemoryStore(Protocol):
    """What the `open_memory` fixture gives: each call opens one more store on the same place.

    The place is new for each test. The fixture closes what it opened, also what a test closed already.
    """

    async def __call__(self) -> MemoryStore:
        """Open a store."""
        ...


class _Writer:
    """Makes changes, each with a key of its own."""

    def __init__(self, store: MemoryStore, notebook: Notebook = BOOK, name: str = 'writer') -> None:
        self._store, self._notebook, self._name = store, notebook, name
        self._count = 0

    async def __call__(self, edit: Edit, note: str = MAIN) -> str:
        self._count += 1
        return await self._store.edit(self._notebook, note, edit, key=f'{self._name}-{self._count}')


async def text_of(store: MemoryStore, note: str = MAIN, notebook: Notebook = BOOK) -> str | None:
    """Return the text of a note, if there is one."""
    found = await store.read(notebook, note)
    return None if found is None else found.text


async def all_notes(store: MemoryStore, notebook: Notebook = BOOK) -> list[Note]:
    """Return all notes, as the store lists them."""
    return [note async for page in store.pages(notebook) for note in page]


@pytest.mark.asyncio
class MemoryStoreConformance:
    """Derive from it and provide `open_memory`."""

    persistent: ClassVar[bool] = True
    """Whether a second store on the same place holds what the first one wrote. Declared, never detected."""

    @pytest_asyncio.fixture
    async def memory(self, open_memory: OpenMemoryStore) -> MemoryStore:
        """Open the one store that most tests need."""
        return await open_memory()

    # --- edits ---

    async def test_a_text_is_added_on_a_line_of_its_own(self, memory: MemoryStore) -> None:
        write = _Writer(memory)
        for text in ('one', 'two\n', 'three'):
            await write(Append(text))
        assert await text_of(memory) == 'one\ntwo\nthree'

    async def test_a_passage_is_replaced_where_it_is_unique(self, memory: MemoryStore) -> None:
        write = _Writer(memory)
        await write(Append('likes tea, not coffee'))
        revision = await write(Replace('tea', 'milk'))
        assert await text_of(memory) == 'likes milk, not coffee'
        assert revision == revision_of('likes milk, not coffee')
        await write(Replace(', not coffee', ''))
        assert await text_of(memory) == 'likes milk'

    async def test_what_is_not_there_once_is_not_replaced(self, memory: MemoryStore) -> None:
        write = _Writer(memory)
        await write(Append('aaa'))
        for old in ('absent', 'a', 'aa', '', 'A'):
            with pytest.raises(NoteConflictError) as raised:
                await write(Replace(old, 'b'))
            assert raised.value.note == MAIN
        assert await text_of(memory) == 'aaa'

    async def test_a_deleted_note_is_gone_and_can_be_made_again(self, memory: MemoryStore) -> None:
        write = _Writer(memory)
        await write(Append('old'), 'plan')
        assert await write(Delete(), 'plan') == DELETED
        assert await memory.read(BOOK, 'plan') is None
        assert await all_notes(memory) == []
        await write(Append('new'), 'plan')
        assert await text_of(memory, 'plan') == 'new'

    async def test_what_is_not_there_is_not_found(self, memory: MemoryStore) -> None:
        for edit in (Replace('a', 'b'), Delete()):
            with pytest.raises(NoteNotFoundError):
                await memory.edit(BOOK, MAIN, edit, key='1')
        assert await memory.read(BOOK, MAIN) is None
        assert await memory.glance(BOOK, name=MAIN, max_bytes=9, max_names=9) == Glance(None, False, (), False)

    # --- revisions ---

    async def test_an_edit_of_an_older_revision_changes_nothing(self, memory: MemoryStore) -> None:
        write = _Writer(memory)
        old = await write(Append('a'))
        await write(Append('b'))
        for edit in (Append('c', old), Replace('b', 'c', old), Delete(old), Append('c', DELETED)):
            with pytest.raises(NoteConflictError):
                await write(edit)
        assert await text_of(memory) == 'a\nb'

    async def test_an_edit_of_the_present_revision_is_made(self, memory: MemoryStore) -> None:
        write = _Writer(memory)
        revision = await write(Append('a', DELETED))
        found = await memory.read(BOOK, MAIN)
        assert found is not None
        assert found.revision == revision
        revision = await write(Append('b', revision))
        await write(Delete(revision))
        assert await memory.read(BOOK, MAIN) is None

    # --- repeated operations ---

    async def test_an_operation_that_is_repeated_changes_nothing(self, memory: MemoryStore) -> None:
        first = await memory.edit(BOOK, MAIN, Append('a'), key='call-1')
        assert await memory.edit(BOOK, MAIN, Append('a'), key='call-1') == first
        assert await text_of(memory) == 'a'
        await memory.edit(BOOK, MAIN, Replace('a', 'b'), key='call-2')
        assert await memory.edit(BOOK, MAIN, Append('a'), key='call-1') == first
        assert await memory.edit(BOOK, MAIN, Replace('a', 'b'), key='call-2') == revision_of('b')
        assert await text_of(memory) == 'b'
        assert await memory.edit(BOOK, MAIN, Delete(), key='call-3') == DELETED
        assert await memory.edit(BOOK, MAIN, Delete(), key='call-3') == DELETED
        assert await memory.edit(BOOK, MAIN, Append('a'), key='call-1') == first
        assert await memory.read(BOOK, MAIN) is None

    async def test_an_operation_that_failed_can_be_done_with_its_key(self, memory: MemoryStore) -> None:
        with pytest.raises(NoteError):
            await memory.edit(BOOK, MAIN, Replace('a', 'b'), key='call-1')
        await memory.edit(BOOK, MAIN, Append('a'), key='call-0')
        await memory.edit(BOOK, MAIN, Replace('a', 'b'), key='call-1')
        assert await text_of(memory) == 'b'

    async def test_a_key_belongs_to_one_notebook(self, memory: MemoryStore) -> None:
        other = Notebook('librarian', 'user-2')
        for notebook in (BOOK, other):
            await memory.edit(notebook, MAIN, Append('a'), key='call-1')
        assert await text_of(memory, notebook=other) == 'a'

    async def test_any_key_tells_an_operation(self, memory: MemoryStore) -> None:
        keys, texts = ['', '!', 'a"b', 'a', 'é\n', 'é', 'k' * 300], list[str | None]()
        for _ in range(2):
            for number, key in enumerate(keys):
                await memory.edit(BOOK, MAIN, Append(str(number)), key=key)
            texts.append(await text_of(memory))
        assert texts == ['0\n1\n2\n3\n4\n5\n6'] * 2

    async def test_an_operation_is_remembered_through_many_others(self, memory: MemoryStore) -> None:
        write = _Writer(memory)
        await memory.edit(BOOK, MAIN, Append('a'), key='call-1')
        for _ in range(20):
            await write(Append('b'), 'other')
        await memory.edit(BOOK, MAIN, Append('a'), key='call-1')
        assert await text_of(memory) == 'a'
        assert OPERATIONS_KEPT > 20

    # --- texts ---

    async def test_any_text_comes_back(self, memory: MemoryStore) -> None:
        write = _Writer(memory)
        for number, text in enumerate(TEXTS):
            await write(Append(text), f'text-{number}')
        assert [note.text for note in await all_notes(memory)] == list(TEXTS)
        for number, text in enumerate(TEXTS):
            assert await memory.read(BOOK, f'text-{number}') == Note(f'text-{number}', text)

    async def test_a_text_that_not_every_store_can_keep_is_refused(self, memory: MemoryStore) -> None:
        for text in ('a\x00b', '\ud800'):
            with pytest.raises(NotStorableError):
                await memory.edit(BOOK, MAIN, Append(text), key='1')
        assert await memory.read(BOOK, MAIN) is None

    async def test_a_note_has_a_largest_size(self, memory: MemoryStore) -> None:
        write = _Writer(memory)
        await write(Append('é' * (NOTE_BYTES // 2)))
        for edit in (Append('x'), Replace('é' * (NOTE_BYTES // 2), 'x' * (NOTE_BYTES + 1))):
            with pytest.raises(NoteTooLargeError):
                await write(edit)
        assert await text_of(memory) == 'é' * (NOTE_BYTES // 2)

    # --- names ---

    async def test_a_note_with_another_kind_of_name_is_refused(self, memory: MemoryStore) -> None:
        for name in BAD_NOTE_NAMES:
            with pytest.raises(InvalidNoteNameError):
                await memory.edit(BOOK, name, Append('x'), key='1')
            with pytest.raises(InvalidNoteNameError):
                await memory.read(BOOK, name)
            with pytest.raises(InvalidNoteNameError):
                await memory.glance(BOOK, name=name, max_bytes=9, max_names=9)
        assert await all_notes(memory) == []

    async def test_any_two_names_are_two_notebooks(self, memory: MemoryStore) -> None:
        names = list(dict.fromkeys([*UNUSUAL, *ALIKE]))
        notebooks = [Notebook(name, 'x') for name in names] + [Notebook('x', name) for name in names]
        for number, notebook in enumerate(notebooks):
            await memory.edit(notebook, MAIN, Append(str(number)), key='1')
        texts = [await text_of(memory, notebook=notebook) for notebook in notebooks]
        assert texts == [str(number) for number in range(len(notebooks))]

    # --- bounded reads ---

    async def test_a_glance_is_bounded(self, memory: MemoryStore) -> None:
        write = _Writer(memory)
        for name in ('b', 'c', 'a-long-name'):
            await write(Append(f'text of {name}'), name)
        assert await self._glance(memory, 4, 2) == Glance(None, False, ('a-long-name', 'b'), True)
        await write(Append('aéé'))
        assert await self._glance(memory, 4, 2) == Glance('aé', True, ('a-long-name', 'b'), True)
        assert await self._glance(memory, 3, 3) == Glance('aé', True, ('a-long-name', 'b', 'c'), False)
        assert await self._glance(memory, 2, 9) == Glance('a', True, ('a-long-name', 'b', 'c'), False)
        assert await self._glance(memory, 5, 0) == Glance('aéé', False, (), True)
        await write(Append('x' * 65_536))
        glance = await self._glance(memory, 1000, 1)
        assert glance.head == 'aéé\n' + 'x' * 994
        assert glance.is_cut

    async def _glance(self, memory: MemoryStore, max_bytes: int, max_names: int) -> Glance:
        return await memory.glance(BOOK, name=MAIN, max_bytes=max_bytes, max_names=max_names)

    async def test_names_are_ordered_by_their_characters(self, memory: MemoryStore) -> None:
        write, names = _Writer(memory), ['0', '10', '9', 'a', 'a-b', 'a0', 'a_b', 'aa', 'b']
        for name in reversed(names):
            await write(Append(name), name)
        assert [note.name for note in await all_notes(memory)] == names
        assert (await self._glance(memory, 9, 99)).names == tuple(names)

    async def test_all_notes_are_listed_by_pages(self, memory: MemoryStore) -> None:
        write, names = _Writer(memory), [f'n-{number:04}' for number in range(PAGE + 5)]
        for name in names:
            await write(Append(name), name)
        pages = [page async for page in memory.pages(BOOK)]
        assert [note.name for page in pages for note in page] == names
        assert max(map(len, pages)) <= PAGE
        assert await all_notes(memory, Notebook('librarian', 'user-2')) == []

    # --- search ---

    async def test_search_is_literal_and_does_not_regard_case(self, memory: MemoryStore) -> None:
        write = _Writer(memory)
        await write(Append('Straße 50%\ncafe\u0301'), 'a')
        await write(Append('500\nCAFÉ'), 'b')
        found = {query: [(hit.note, hit.line) for hit in (await search(memory, BOOK, query)).hits] for query in
                 ('STRASSE', '50%', '50_', 'café', "a' OR 1=1", '.')}  # fmt: skip
        assert found == {
            'STRASSE': [('a', 1)],
            '50%': [('a', 1)],
            '50_': [],
            'café': [('a', 2), ('b', 2)],
            "a' OR 1=1": [],
            '.': [],
        }

    # --- forgetting ---

    async def test_a_notebook_is_forgotten_with_all_it_has(self, memory: MemoryStore) -> None:
        others = [Notebook('librarian', 'user-2'), Notebook('another', BOOK.namespace)]
        await memory.forget(BOOK)
        for notebook in (BOOK, *others):
            for name in (MAIN, 'plan'):
                await memory.edit(notebook, name, Append('kept'), key=name)
        await memory.forget(BOOK)
        assert await all_notes(memory) == []
        assert await self._glance(memory, 9, 9) == Glance(None, False, (), False)
        for notebook in others:
            assert [note.name for note in await all_notes(memory, notebook)] == [MAIN, 'plan']
        await memory.edit(BOOK, MAIN, Append('new'), key=MAIN)
        assert [note.text for note in await all_notes(memory)] == ['new'], 'its operations are forgotten too'

    # --- many at once ---

    async def test_writers_at_once_lose_nothing(self, open_memory: OpenMemoryStore) -> None:
        stores = [await open_memory() for _ in range(2)]
        writers = [_Writer(store, name=f'writer-{number}') for number, store in enumerate(stores)]
        lines = [f'{number}-{index}' for index in range(8) for number in range(2)]
        await asyncio.gather(*(writers[int(line[0])](Append(line)) for line in lines))
        text = await text_of(stores[0])
        assert text is not None
        assert sorted(text.split('\n')) == sorted(lines)

    async def test_one_operation_by_many_at_once_happens_once(self, open_memory: OpenMemoryStore) -> None:
        stores = [await open_memory() for _ in range(3)]
        revisions = await asyncio.gather(
            *(store.edit(BOOK, MAIN, Append('a'), key='call-1') for store in stores for _ in range(3))
        )
        assert {*revisions} == {revision_of('a')}
        assert await text_of(stores[0]) == 'a'

    # --- opening and closing ---

    async def test_a_second_store_has_what_the_first_one_wrote(self, open_memory: OpenMemoryStore) -> None:
        if not self.persistent:
            pytest.skip('declared not to be persistent')
        first = await open_memory()
        await first.edit(BOOK, MAIN, Append('kept'), key='call-1')
        await first.aclose()
        second = await open_memory()
        assert await text_of(second) == 'kept'
        await second.edit(BOOK, MAIN, Append('kept'), key='call-1')
        assert await text_of(second) == 'kept'

    async def test_closing_twice_is_fine(self, memory: MemoryStore) -> None:
        await memory.edit(BOOK, MAIN, Append('x'), key='1')
        await memory.aclose()
        await memory.aclose()
