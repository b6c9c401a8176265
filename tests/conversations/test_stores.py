"""What is the same in all stores of this package, beyond what the conformance suite asks of everybody's."""

from __future__ import annotations

from typing import Any

import pytest

from harness_temporal.conversations import BaseConversationStore, ConversationSummary, documents, protocol
from harness_temporal.errors import HarnessError, StoreCorruptionError, StoreError, StoreSchemaError
from harness_temporal.stores import StoreMaintenance
from harness_temporal.testing import Place
from harness_temporal.testing.conversations.base import a_conversation
from harness_temporal.testing.maintenance import ALL, SHARED, fill, later, left, prompt
from harness_temporal.testing.samples import turns


def damaged(stored: str) -> str:
    return stored.replace('"revision": 1', '"revision": "one"')


def newer(stored: str) -> str:
    return stored.replace('"schema_version": 1', '"schema_version": 2')


@pytest.mark.parametrize(('change', 'error'), [(newer, StoreSchemaError), (damaged, StoreCorruptionError)])
async def test_metadata_of_an_unknown_form_is_refused_by_every_method(
    place: Place, monkeypatch: pytest.MonkeyPatch, change: Any, error: type[StoreError]
) -> None:
    store, dump = place.conversations, documents.dump_summary
    with monkeypatch.context() as patch:
        patch.setattr(documents, 'dump_summary', lambda summary: change(dump(summary)))
        saved = await store.save(summary=a_conversation(), messages=turns(1))
    await fill(place.steps, conversation_id=saved.id)
    for call in (
        lambda: store.get(conversation_id=saved.id),
        lambda: store.listing(),
        lambda: store.save(summary=saved, messages=turns(2)),
        lambda: store.name(source=saved, title='T', manual=True),
        lambda: store.renew(source=saved),
        lambda: store.delete(source=saved),
    ):
        with pytest.raises(error):
            await call()
    assert await left(place.steps) == ALL


async def test_runs_stay_when_their_conversation_cannot_be_deleted(
    place: Place, location: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = await place.conversations.save(summary=a_conversation(), messages=turns(1))
    await fill(place.steps, conversation_id=saved.id)
    await make_the_last_statement_of_a_deletion_fail(location, monkeypatch)
    maintenance = StoreMaintenance(place.steps, conversations=place.conversations)
    for delete in (
        lambda: place.conversations.delete(source=saved),
        lambda: maintenance.delete_conversation(saved.id),
    ):
        with pytest.raises((HarnessError, Broken)):
            await delete()
    assert await left(place.steps) == ALL
    assert (await place.conversations.get(conversation_id=saved.id)).summary == saved


class Broken(Exception): ...


async def make_the_last_statement_of_a_deletion_fail(
    location: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    match location:
        case ('sqlite', file):
            import sqlite3

            connection = sqlite3.connect(file)
            connection.execute(
                "CREATE TRIGGER refuse BEFORE DELETE ON conversation_heads BEGIN SELECT RAISE(FAIL, 'refused'); END"
            )
            connection.close()
        case ('postgres', dsn, schema):
            import asyncpg

            connection = await asyncpg.connect(dsn)
            await connection.execute(
                f'CREATE FUNCTION {schema}.refuse() RETURNS trigger LANGUAGE plpgsql AS '
                "$$ BEGIN RAISE 'refused'; END $$;"
                f'CREATE TRIGGER refuse BEFORE DELETE ON {schema}.conversation_heads '
                f'EXECUTE FUNCTION {schema}.refuse()'
            )
            await connection.close()
        case _:
            from harness_temporal.conversations.mongo import heads

            deleting = heads.delete_of_runs

            async def fail(*arguments: Any) -> None:
                await deleting(*arguments)
                raise Broken

            monkeypatch.setattr(heads, 'delete_of_runs', fail)


async def test_write_whose_answer_was_lost_is_not_taken_for_another_writers(
    place: Place, location: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = place.conversations
    match location[0]:
        case 'sqlite':
            # There is nobody between the store and its file that could lose it.
            return
        case 'postgres':
            from harness_temporal.databases.postgres.connections import Connections

            fetch = Connections.fetch

            async def twice(self: Connections, query: str, *arguments: object) -> Any:
                if 'put_conversation' in query:
                    await fetch(self, query, *arguments)
                return await fetch(self, query, *arguments)

            monkeypatch.setattr(Connections, 'fetch', twice)
        case _:
            from harness_temporal.conversations.mongo.heads import Heads

            put = Heads.put

            async def lost(self: Heads, *arguments: Any) -> bool:
                await put(self, *arguments)
                return False

            monkeypatch.setattr(Heads, 'put', lost)
    saved = await store.save(summary=a_conversation(), messages=turns(1))
    saved = await store.save(summary=saved, messages=turns(2))
    assert await store.name(source=saved, title='T', tokens=5)
    summary = (await store.get(conversation_id=saved.id)).summary
    assert (summary.revision, summary.naming_version, summary.naming_tokens) == (2, 1, 5)


async def test_conversation_without_its_blob_says_whose_it_is(place: Place) -> None:
    store = place.conversations
    await store.save(summary=a_conversation('held'), messages=[prompt(SHARED)])
    assert isinstance(store, BaseConversationStore)
    media: Any = store.media_store
    [blob] = [blob async for blob in media.blobs()]
    await media.delete(blob.digest, untouched_since=later())
    with pytest.raises(StoreCorruptionError, match=rf"conversation 'held' needs the blob .*{blob.digest}"):
        await store.get(conversation_id='held')


async def test_listing_loads_no_messages(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    store = place.conversations
    await store.save(summary=a_conversation(), messages=turns(3))

    def fail(*_: object) -> None:
        raise AssertionError('a message was read')

    monkeypatch.setattr(protocol, 'decode_message', fail)
    monkeypatch.setattr(BaseConversationStore, 'get', fail)
    assert [type(found) for found in await store.listing(query='turn 2')] == [ConversationSummary]
