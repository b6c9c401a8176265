"""With keys, what a store keeps of its users' content cannot be read without them, on every persistent store."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.messages import BinaryImage, ModelMessage, ModelRequest, ToolReturnPart, UserPromptPart

from harness_temporal.conversations import ConversationSummary
from harness_temporal.encryption import Key, KeyRing
from harness_temporal.errors import (
    ConfigurationError,
    MissingKeyError,
    StoreCorruptionError,
    ToolEffectConflictError,
)
from harness_temporal.media import BaseMediaStore, DiskMediaStore, media_uri
from harness_temporal.records import ModelResponseRecord, utc_now
from harness_temporal.stores import BaseStepStore, SqliteStepStore
from harness_temporal.stores.opening import open_store
from harness_temporal.stores.sealing import Sealer
from harness_temporal.testing.samples import NOON, a_snapshot, a_start, an_end, an_event, asks, says, turns
from tests.backends import PERSISTENT
from tests.stores.sealed_places import Place, new_place, seen_in

OLD, NEW = Key('old', b'o' * 32), Key('new', b'n' * 32)

PROMPT, RESULT, RESPONSE = b'SECRET-PROMPT-0123', b'SECRET-RESULT-0123', b'SECRET-ANSWER-0123'
LARGE, IMAGE, LATER = b'SECRET-LARGE-01234', b'SECRET-IMAGE-01234', b'SECRET-LATER-01234'
ERROR, SUMMARY, EVENT = b'SECRET-ERROR-01234', b'SECRET-SUMMARY-012', b'SECRET-EVENT-01234'
SECRETS = [PROMPT, RESULT, LARGE, IMAGE, ERROR, SUMMARY, EVENT, RESPONSE]
LARGE_TEXT = LARGE.decode() * 5_000
LARGE_IMAGE = IMAGE + bytes(range(256)) * 5_000
MESSAGES: list[ModelMessage] = [
    ModelRequest(parts=[UserPromptPart([PROMPT.decode(), BinaryImage(LARGE_IMAGE, media_type='image/png')])]),
    ModelRequest(parts=[ToolReturnPart('t', {'small': RESULT.decode(), 'large': LARGE_TEXT}, tool_call_id='c')]),
]
VALUE = b'{"kind":"tool_return","result":"%b","more":"%b"}' % (RESULT, LARGE_TEXT.encode())


@pytest.fixture(params=PERSISTENT)
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    async with new_place(request.param, request, tmp_path) as place:
        yield place


@pytest.fixture
async def sqlite_place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    async with new_place('sqlite', request, tmp_path) as place:
        yield place


async def save(store: BaseStepStore, run_id: str = 'run-1') -> None:
    response = ModelResponseRecord(run_id=run_id, key='k', body=b'{"answer":"%b"}' % RESPONSE)
    event = an_event(run_id, error=EVENT.decode())
    await store.commit([a_snapshot(MESSAGES, run_id), a_start(run_id), event, response])
    await store.record_tool_effect(an_end(run_id, value=VALUE, error=ERROR.decode(), effect_summary=SUMMARY.decode()))


async def check(store: BaseStepStore, run_id: str = 'run-1') -> None:
    [snapshot] = await store.list_snapshots(run_id=run_id)
    assert snapshot.messages == MESSAGES
    [effect] = await store.list_tool_effects(run_id=run_id)
    assert (effect.value, effect.error, effect.effect_summary) == (VALUE, ERROR.decode(), SUMMARY.decode())
    assert await store.get_tool_effect(run_id=run_id, tool_call_id=effect.tool_call_id) == effect
    [event] = await store.list_events(run_id=run_id)
    assert event.error == EVENT.decode()
    response = await store.get_model_response(run_id=run_id, key='k')
    assert response is not None
    assert response.body == b'{"answer":"%b"}' % RESPONSE


READS: list[Callable[[BaseStepStore], Any]] = [
    lambda store: store.latest_snapshot(run_id='run-1'),
    lambda store: store.list_tool_effects(run_id='run-1'),
    lambda store: store.list_events(run_id='run-1'),
    lambda store: store.get_model_response(run_id='run-1', key='k'),
]


async def test_nothing_of_the_content_can_be_read_where_it_is(place: Place) -> None:
    keys = KeyRing.of(OLD)
    await save(place.steps(keys=keys))
    raw = await place.raw()
    assert seen_in(raw, SECRETS) == []
    names = [media_uri(data)[-64:] for data in (LARGE_TEXT.encode(), LARGE_IMAGE)]
    assert seen_in(raw, [form for name in names for form in (name.encode(), bytes.fromhex(name))]) == []
    await check(place.steps(keys=keys))


async def test_without_keys_all_of_it_can(place: Place) -> None:
    """What the test above looks for would be found."""
    await save(place.steps())
    assert seen_in(await place.raw(), SECRETS) == SECRETS


async def test_a_given_media_store_gets_no_plain_text(sqlite_place: Place, tmp_path: Path) -> None:
    media = DiskMediaStore(tmp_path / 'blobs')
    await save(sqlite_place.steps(keys=KeyRing.of(OLD), media_store=media, media_threshold_bytes=100))
    blobs = [path.read_bytes() for path in (tmp_path / 'blobs').rglob('*') if path.is_file()]
    assert len(blobs) >= 2
    assert seen_in(b''.join(blobs), [*SECRETS, b'image/png']) == []
    await check(sqlite_place.steps(keys=KeyRing.of(OLD), media_store=media))


async def test_what_was_encrypted_with_the_old_key_stays_readable_beside_the_new_one(place: Place) -> None:
    await save(place.steps(keys=KeyRing.of(OLD)))
    rotated = place.steps(keys=KeyRing.of(NEW, OLD))
    await save(rotated, 'run-2')
    # Messages are kept once: those of the second run are there already, under the old key.
    await rotated.save_snapshot(a_snapshot([*MESSAGES, says('later')], 'run-3'))
    await check(rotated)
    await check(place.steps(keys=KeyRing.of(OLD, NEW)), 'run-2')
    only_new = place.steps(keys=KeyRing.of(NEW))
    with pytest.raises(MissingKeyError, match=r"run 'run-1'.*'old'.*not among the keys") as raised:
        await only_new.latest_snapshot(run_id='run-1')
    assert raised.value.key_id == 'old'
    [event] = await only_new.list_events(run_id='run-2')
    assert event.error == EVENT.decode()


async def test_encryption_is_switched_on_later(place: Place) -> None:
    store = place.steps()
    await save(store)
    sealed = place.steps(keys=KeyRing.of(OLD))
    await check(sealed)
    more = [*MESSAGES, asks(LATER.decode())]
    await sealed.save_snapshot(a_snapshot(more, 'run-2'))
    assert seen_in(await place.raw(), [LATER]) == []
    read = await sealed.latest_snapshot(run_id='run-2')
    assert read is not None
    assert read.messages == more
    await check(store)
    with pytest.raises(MissingKeyError, match="'old', and this store has no keys"):
        await store.latest_snapshot(run_id='run-2')


@pytest.mark.parametrize('read', READS, ids=['snapshot', 'effects', 'events', 'response'])
async def test_a_reader_without_keys_is_told_which_one_it_needs(
    sqlite_place: Place, read: Callable[[BaseStepStore], Any]
) -> None:
    await save(sqlite_place.steps(keys=KeyRing.of(OLD)))
    with pytest.raises(MissingKeyError, match="run 'run-1' has content that is encrypted with the key 'old'"):
        await read(sqlite_place.steps())


def changed(stored: bytes | str) -> bytes | str:
    """Change what is some bytes before the end."""
    if isinstance(stored, bytes):
        return stored[:-9] + bytes([stored[-9] ^ 1]) + stored[-8:]
    return stored[:-9] + ('A' if stored[-9] != 'A' else 'B') + stored[-8:]


@pytest.mark.parametrize(
    ('table', 'column', 'read'),
    [
        ('messages', 'body', READS[0]),
        ('tool_effects', 'value', READS[1]),
        ('tool_effects', 'effect_summary', READS[1]),
        ('events', 'error', READS[2]),
        ('model_responses', 'body', READS[3]),
    ],
    ids=['message', 'value', 'summary', 'event', 'response'],
)
async def test_a_changed_byte_is_found_out(
    sqlite_place: Place, tmp_path: Path, table: str, column: str, read: Callable[[BaseStepStore], Any]
) -> None:
    store = sqlite_place.steps(keys=KeyRing.of(OLD))
    await save(store)
    with closing(sqlite3.connect(tmp_path / 'database' / 'runs.db')) as connection:
        connection.create_function('changed', 1, changed)
        connection.execute(f'UPDATE {table} SET {column} = changed({column})')
        connection.commit()
    with pytest.raises(StoreCorruptionError, match="run 'run-1' has content that cannot be decrypted"):
        await read(store)


async def test_another_key_of_the_same_id_is_found_out(sqlite_place: Place) -> None:
    await save(sqlite_place.steps(keys=KeyRing.of(OLD)))
    for read in READS:
        with pytest.raises(StoreCorruptionError, match='another key of the same id'):
            await read(sqlite_place.steps(keys=KeyRing.of(replace(OLD, secret=b'x' * 32))))


@pytest.mark.parametrize('keys', [None, KeyRing.of(OLD)], ids=['plain', 'sealed'])
async def test_what_looks_encrypted_comes_back_as_it_is(place: Place, keys: KeyRing | None) -> None:
    sealer = Sealer(NEW)
    bodies = [b'\x03', b'\x03\x03', b'\x031 old\n', sealer.seal(b'x'), b'\x02' + sealer.seal(b'x')]
    texts = ['\x03', '\x03\x03', '\x03x', '\x03\x03x', sealer.seal_text('x'), 'x\x03', '', '\ud800']
    store = place.steps(keys=keys)
    for number, body in enumerate(bodies):
        await store.commit([an_end(call_key=f'{number}', value=body, tool_call_id=f'{number}')])
    for text in texts:
        await store.append_event(an_event(error=text))
        await store.record_tool_effect(an_end('run-2', call_key=text, error=text, effect_summary=text))
    store = place.steps(keys=keys)
    assert [effect.value for effect in await store.list_tool_effects(run_id='run-1')] == bodies
    assert [event.error for event in await store.list_events(run_id='run-1')] == texts
    effects = await store.list_tool_effects(run_id='run-2')
    assert [(effect.error, effect.effect_summary) for effect in effects] == [(text, text) for text in texts]


async def test_what_is_referred_to_can_be_told_without_keys(place: Place) -> None:
    store = place.steps(keys=KeyRing.of(OLD))
    await save(store)
    media, without_keys = store.media_store, place.steps()
    assert isinstance(media, BaseMediaStore)
    blobs = {blob.digest async for blob in media.blobs()}
    assert len(blobs) == 2
    assert {digest async for digest in without_keys.media_references()} == blobs
    await without_keys.delete_runs(['run-1'])
    await without_keys.collect_messages(untouched_since=utc_now() + timedelta(hours=1))
    assert {digest async for digest in without_keys.media_references()} == set()


async def test_a_save_encrypts_what_is_new(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    sealed: list[bytes] = []
    seal = Sealer.seal

    def counting(self: Sealer, body: bytes, context: bytes = b'') -> bytes:
        sealed.append(body)
        return seal(self, body, context)

    monkeypatch.setattr(Sealer, 'seal', counting)
    store, history = place.steps(keys=KeyRing.of(OLD)), turns(10)
    for length in range(2, len(history) + 1, 2):
        await store.save_snapshot(a_snapshot(history[:length], step_index=length))
    assert len(sealed) == len(history)
    await store.save_snapshot(a_snapshot([*history[:4], says('a fork')], 'run-2'))
    assert len(sealed) == len(history) + 1


async def test_a_history_that_was_collected_meanwhile_is_saved_anew(place: Place) -> None:
    store, history = place.steps(keys=KeyRing.of(OLD)), turns(6)
    await store.save_snapshot(a_snapshot(history[:4]))
    await store.delete_runs(['run-1'])
    assert await store.collect_messages(untouched_since=utc_now() + timedelta(hours=1)) == 4
    await store.save_snapshot(a_snapshot(history, 'run-2'))
    read = await store.latest_snapshot(run_id='run-2')
    assert read is not None
    assert read.messages == history


async def test_the_same_save_again_changes_nothing(place: Place) -> None:
    await save(place.steps(keys=KeyRing.of(OLD)))
    media = place.steps(keys=KeyRing.of(OLD)).media_store
    assert isinstance(media, BaseMediaStore)
    before = {blob.digest async for blob in media.blobs()}
    await save(place.steps(keys=KeyRing.of(OLD)), 'run-2')
    assert {blob.digest async for blob in media.blobs()} == before


async def test_a_conflict_tells_what_is_there_as_it_was_given(sqlite_place: Place) -> None:
    store = sqlite_place.steps(keys=KeyRing.of(OLD))
    await save(store)
    with pytest.raises(ToolEffectConflictError) as raised:
        await store.record_tool_effect(a_start(attempts=5, holder='another'))
    current = raised.value.current
    assert (current.value, current.error, current.effect_summary) == (VALUE, ERROR.decode(), SUMMARY.decode())


async def test_messages_of_conversations_are_encrypted_and_their_titles_found(place: Place) -> None:
    conversations, steps = place.conversations(keys=KeyRing.of(OLD)), place.steps(keys=KeyRing.of(OLD))
    summary = ConversationSummary(id='conversation', title='Holidays', updated_at=NOON)
    saved = await conversations.save(summary=summary, messages=MESSAGES)
    await steps.save_snapshot(a_snapshot(MESSAGES))
    await conversations.save(summary=saved, messages=[*MESSAGES, asks(LATER.decode())])
    assert seen_in(await place.raw(), [*SECRETS, LATER, PROMPT.lower(), LATER.lower()]) == []
    read = await place.conversations(keys=KeyRing.of(OLD)).get(conversation_id='conversation')
    assert read.messages == [*MESSAGES, asks(LATER.decode())]
    assert [found.id for found in await conversations.listing(query='holi')] == ['conversation']
    assert await conversations.listing(query='secret') == []
    with pytest.raises(MissingKeyError, match=r"conversation 'conversation'.*'old'"):
        await place.conversations().get(conversation_id='conversation')


async def test_stores_that_are_opened_by_a_url_take_keys(tmp_path: Path) -> None:
    for url in (f'file:{tmp_path}/runs', f'sqlite:{tmp_path}/runs.db'):
        store = open_store(url, keys=KeyRing.of(OLD))
        await store.append_event(an_event(error=EVENT.decode()))
        await store.aclose()
        with pytest.raises(MissingKeyError):
            await open_store(url).list_events(run_id='run-1')


def test_keys_without_the_extra_are_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, 'cryptography.hazmat.primitives.ciphers.aead', None)
    with pytest.raises(ConfigurationError, match=r'harness-temporal\[crypto\]'):
        SqliteStepStore(':memory:', keys=KeyRing.of(OLD))
