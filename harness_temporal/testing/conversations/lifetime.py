"""Who works on a conversation, what expires, and opening a store again."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from harness_temporal.conversations.busy import ensure_inactive
from harness_temporal.conversations.protocol import ConversationStore
from harness_temporal.conversations.records import SavedConversation
from harness_temporal.errors import (
    ConversationConflict,
)
from harness_temporal.records import utc_now
from harness_temporal.testing.conversations.base import (
    HELD_ID,
    HOUR,
    ConversationTests,
    OpenPlace,
    Place,
    a_conversation,
    ids,
)
from harness_temporal.testing.maintenance import ALL, fill, left
from harness_temporal.testing.samples import (
    a_start,
    turns,
)


class LifetimeConformance(ConversationTests):
    """Who works on a conversation, what expires, and opening a store again."""

    async def test_running_conversation_is_busy_until_it_is_saved_otherwise(self, store: ConversationStore) -> None:
        running = await store.save(summary=a_conversation(outcome='running'), messages=turns(1))
        assert running == (await store.get(conversation_id=HELD_ID)).summary
        assert (running.owner_pid, running.busy_until is None) == (
            (os.getpid(), True) if self.busy_by == 'process' else (None, False)
        )
        with pytest.raises(ConversationConflict, match='busy'):
            ensure_inactive(running)
        with pytest.raises(ConversationConflict, match='busy'):
            await store.delete(source=running)
        # Whoever has it may save it, and anybody may name it.
        assert await store.name(source=running, title='T')
        done = await store.save(summary=replace(running, outcome='completed'), messages=turns(2))
        assert (done.owner_pid, done.busy_until) == (None, None)
        ensure_inactive(done)
        await store.delete(source=done)

    async def test_conversation_whose_owner_died_is_free(self, open_place: OpenPlace) -> None:
        store = (await open_place(lease=timedelta(microseconds=1))).conversations
        owner = await asyncio.create_subprocess_exec(sys.executable, '-c', 'input()', stdin=subprocess.PIPE)
        running = a_conversation(outcome='running', owner_pid=owner.pid)
        running = await store.save(summary=running, messages=turns(1))
        if self.busy_by == 'process':
            with pytest.raises(ConversationConflict, match=f'process {owner.pid}'):
                await store.delete(source=running)
        await owner.communicate(b'\n')
        ensure_inactive(running)
        await store.delete(source=running)

    async def test_lease_is_renewed(self, open_place: OpenPlace) -> None:
        short, long = await open_place(lease=timedelta(microseconds=1)), await open_place(lease=HOUR)
        running = await short.conversations.save(summary=a_conversation(outcome='running'), messages=turns(1))
        renewed = await long.conversations.renew(source=running)
        assert renewed == (await short.conversations.get(conversation_id=HELD_ID)).summary
        assert renewed == replace(running, busy_until=renewed.busy_until)
        with pytest.raises(ConversationConflict, match='busy'):
            await short.conversations.delete(source=renewed)
        taken = await short.conversations.save(summary=replace(renewed, outcome='failed'), messages=turns(1))
        with pytest.raises(ConversationConflict):
            await long.conversations.renew(source=renewed)
        await short.conversations.delete(source=taken)
        with pytest.raises(ConversationConflict, match='deleted'):
            await long.conversations.renew(source=taken)

    # --- age ---

    async def test_idle_conversations_expire_with_their_runs(self, place: Place) -> None:
        store, steps = place.conversations, place.steps
        for name in ('idle', 'busy', 'active', 'unresolved', 'young'):
            outcome: Any = 'running' if name == 'busy' else 'completed'
            if name != 'young':
                await store.save(summary=a_conversation(name, outcome=outcome), messages=turns(1))
        await fill(steps, 'run-idle', conversation_id='idle')
        await fill(steps, 'run-active', conversation_id='active', at=utc_now() + HOUR)
        await fill(steps, 'run-unresolved', conversation_id='unresolved')
        await steps.record_tool_effect(a_start('run-unresolved', call_key='another'))
        await asyncio.sleep(0.001)
        aged = utc_now()
        await store.save(summary=a_conversation('young'), messages=turns(1))
        assert await store.expire(idle_for=HOUR) == []
        assert await store.expire(idle_for=utc_now() - aged) == ['idle']
        assert await left(steps, 'run-idle') == []
        assert {*await ids(store)} == {'busy', 'active', 'unresolved', 'young'}
        assert await store.expire(idle_for=utc_now() - aged, include_unresolved=True) == ['unresolved']
        assert await left(steps, 'run-unresolved') == []
        assert await left(steps, 'run-active') == ALL

    async def test_many_conversations_expire(self, store: ConversationStore, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr('harness_temporal.conversations.protocol._PAGE', 3)
        names = [f'{number}' for number in range(10)]
        for name in names:
            outcome: Any = 'running' if name in '458' else 'ready'
            await store.save(summary=a_conversation(name, outcome=outcome), messages=[])
        await asyncio.sleep(0.001)
        # Oldest first.
        assert await store.expire(idle_for=timedelta(0)) == [name for name in names if name not in '458']
        assert {*await ids(store)} == {*'458'}

    # --- reopening ---

    async def test_another_store_has_what_one_wrote(self, open_place: OpenPlace) -> None:
        first = (await open_place()).conversations
        saved = await first.save(summary=a_conversation(), messages=turns(5))
        await first.aclose()
        await first.aclose()
        second = (await open_place()).conversations
        assert await second.get(conversation_id=HELD_ID) == SavedConversation(summary=saved, messages=turns(5))

    async def test_many_stores_open_an_empty_database_at_once(self, open_place: OpenPlace) -> None:
        places: Sequence[Place] = [await open_place() for _ in range(6)]
        await asyncio.gather(
            *(
                place.conversations.save(summary=a_conversation(f'{number}'), messages=turns(2))
                for number, place in enumerate(places)
            ),
            *(fill(place.steps, f'run-{number}') for number, place in enumerate(places)),
        )
        assert {*await ids(places[0].conversations)} == {f'{number}' for number in range(6)}
