"""The store of one machine."""

from __future__ import annotations

import os
import sqlite3
import stat
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from harness_temporal.conversations import ConversationConflict, ConversationSummary, SqliteConversationStore, busy
from harness_temporal.errors import ConfigurationError
from harness_temporal.testing.samples import turns


async def test_new_file_is_of_its_owner_only(tmp_path: Path) -> None:
    store = SqliteConversationStore(database=tmp_path / 'conversations.db')
    await store.save(summary=ConversationSummary(), messages=turns(1))
    modes = {stat.S_IMODE(os.stat(tmp_path / name).st_mode) for name in os.listdir(tmp_path)}
    assert modes == {0o600}
    await store.aclose()


async def test_nothing_is_made_before_the_first_use(tmp_path: Path) -> None:
    store = SqliteConversationStore(tmp_path / 'conversations.db')
    assert os.listdir(tmp_path) == []
    await store.aclose()


async def test_given_connection_may_read_text_as_it_likes() -> None:
    with closing(sqlite3.connect(':memory:', check_same_thread=False)) as connection:
        connection.text_factory = bytes
        connection.row_factory = sqlite3.Row
        store = SqliteConversationStore(connection=connection)
        saved = await store.save(summary=ConversationSummary(title='Ä'), messages=turns(2))
        assert (await store.get(conversation_id=saved.id)).summary == saved
        assert await store.listing(query='ä') == [saved]
        await store.aclose()


def test_process_of_another_user_is_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(pid: int, signal: int) -> None:
        assert (pid, signal) == (7, 0)
        raise PermissionError

    monkeypatch.setattr(os, 'kill', refuse)
    with pytest.raises(ConversationConflict, match='process 7'):
        busy.ensure_inactive(ConversationSummary(outcome='running', owner_pid=7))


@pytest.mark.parametrize('outcome', ['ready', 'completed', 'failed', 'cancelled'])
def test_finished_conversation_is_free_whoever_lives(outcome: Any) -> None:
    busy.ensure_inactive(ConversationSummary(outcome=outcome, owner_pid=os.getpid()))


def test_unfinished_conversation_of_nobody_is_free() -> None:
    busy.ensure_inactive(ConversationSummary(outcome='running'))


async def test_a_long_conversation_does_not_grow_with_every_save(tmp_path: Path) -> None:
    store = SqliteConversationStore(tmp_path / 'conversations.db')
    summary = ConversationSummary()
    for number in range(10, 101, 10):
        summary = await store.save(summary=summary, messages=turns(4 * number, topic='x' * 1000))
    await store.aclose()
    with closing(sqlite3.connect(tmp_path / 'conversations.db')) as connection:
        assert connection.execute('SELECT count(*) FROM messages').fetchone() == (400,)
        pages = 'SELECT page_count - freelist_count FROM pragma_page_count, pragma_freelist_count'
        [used] = connection.execute(pages).fetchone()
    # What is searched is there once more beside the messages.
    assert used * 4096 < 4 * 400 * 1000


def test_lease_that_ends_at_once_is_refused() -> None:
    pytest.importorskip('asyncpg')
    from datetime import timedelta

    from harness_temporal.conversations import PostgresConversationStore

    with pytest.raises(ConfigurationError, match='lease'):
        PostgresConversationStore('postgresql://localhost/app', lease=timedelta(0))
