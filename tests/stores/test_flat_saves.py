"""A save asks for what is new, however long the run is already."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.messages import ModelMessage

from harness_temporal.history import encode_history, link, since
from harness_temporal.media import DiskMediaStore
from harness_temporal.records import EncodedHistory, Record
from harness_temporal.stores import InMemoryStepStore, MongoStepStore
from harness_temporal.stores.externalizer import Externalizer
from harness_temporal.testing.samples import a_snapshot, an_event, asks, says, turns


class _Counted(dict[bytes, Any]):
    """Links that count how often one is looked for."""

    looks = 0

    def __contains__(self, key: object) -> bool:
        self.looks += 1
        return super().__contains__(key)


async def test_in_memory_only_new_links_are_looked_for() -> None:
    store = InMemoryStepStore()
    links = store._links = _Counted()  # pyright: ignore[reportPrivateUsage]
    looks: list[int] = []
    for length in range(2, 60, 2):
        before = links.looks
        await store.save_snapshot(a_snapshot(turns(length), idempotency_key=f'{length}'))
        looks.append(links.looks - before)
    assert max(looks) <= 3


@pytest.fixture
def commands() -> tuple[list[tuple[str, Any]], Any]:
    """Return what a client was told to do, and what listens to one."""
    monitoring = pytest.importorskip('pymongo.monitoring')
    seen: list[tuple[str, Any]] = []

    class Listener(monitoring.CommandListener):
        def started(self, event: Any) -> None:
            seen.append((event.command_name, event.command))

        def succeeded(self, event: Any) -> None:
            pass

        def failed(self, event: Any) -> None:
            pass

    return seen, Listener()


@pytest.mark.mongo
async def test_in_mongodb_as_many_documents_are_named_as_early_in_the_run(
    mongo: str, database: str, commands: Any
) -> None:
    from pymongo import AsyncMongoClient

    seen, listener = commands
    asked: list[list[tuple[str, str, int]]] = []
    async with AsyncMongoClient[dict[str, Any]](mongo, event_listeners=[listener]) as client:
        store = MongoStepStore(client, database=database)
        try:
            for length in range(2, 42, 2):
                seen.clear()
                await store.commit(batch(length))
                asked.append([_size(command, body) for command, body in seen])
            assert asked[-1] == asked[4]
            assert not [item for item in asked[-1] if item[:2] == ('find', 'events')]
            # Written once more it is found, and nothing is written.
            await store.commit(batch(40))
            assert len(await store.list_events(run_id='run-1')) == 20
            assert len(await store.list_snapshots(run_id='run-1')) == 20
        finally:
            await store.aclose()


def batch(length: int) -> list[Record]:
    snapshot = a_snapshot(turns(length), idempotency_key=f'{length}')
    return [snapshot, an_event(idempotency_key=f'event-{length}')]


def _size(command: str, body: Any) -> tuple[str, str, int]:
    names = body['filter'].get('_id', {}).get('$in', []) if command == 'find' else body.get('updates', [])
    return command, str(body.get(command)), len(names)


def with_large(at: set[int], length: int) -> list[ModelMessage]:
    return [asks('x' * 200 + f'{n}') if n in at else says(f'{n}') for n in range(1, length + 1)]


@pytest.mark.parametrize('at', [set[int](), {1}, {3, 4}, {2, 7, 9}], ids=['none', 'first', 'together', 'apart'])
async def test_large_messages_are_cut_out_however_the_history_came_by(tmp_path: Path, at: set[int]) -> None:
    known = Externalizer(DiskMediaStore(tmp_path / 'known'), 100)

    async def same_as_anew(history: EncodedHistory) -> None:
        anew = Externalizer(DiskMediaStore(tmp_path / 'anew'), 100)
        stored = await known.store_history(history)
        assert stored == await anew.store_history(history)
        cut = {item.length for item in stored.links if item.message.body.startswith(b'\x02')}
        assert cut == {number for number in at if history.base_length < number <= history.length}

    for length in (0, 1, 2, 4, 8, 9, 5, 10):
        whole = encode_history(with_large(at, length))
        await same_as_anew(whole)
        for base in range(length + 1):
            await same_as_anew(since(whole, base))
    # A history whose beginning this process never saw.
    unknown = encode_history(with_large(at, 12))
    rest = link(b'\x07' * 32, 5, [item.message for item in unknown.links[5:]])
    await same_as_anew(rest)
    await same_as_anew(rest)
