"""Make a store with the peer and write down, as JSON, what the peer itself reads back. Runs in the peer's environment.

Usage: `python make_store.py BACKEND PLACE VIEW [PREFIX ...]`, where BACKEND is `file`, `sqlite`, `mongo` or `postgres`,
PLACE is a path, a DSN or a URL with a database, and VIEW is the file to write. The runs that are made have ids with the
last prefix; those with the others were made before.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import asdict
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from pydantic_ai import Agent, ModelRetry, RunContext
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai_harness.step_persistence import (
    ContinuableSnapshot,
    RunRecord,
    StepEvent,
    StepPersistence,
    ToolEffectRecord,
    annotate_tool_effect,
)

LARGE = 80 * 1024
"""More than what the peer keeps inside of a message."""
TEXT = 'Grüße, \u2028 "quoted" \\ text. ' * 4096
IMAGE = bytes(range(256)) * (LARGE // 256)
TOOL_CALLS = ('call-1', 'call-2', 'call-3', 'call-4', 'call-5', 'call-6')


class OutOfOrder(Exception):
    """What the broken tool raises."""


def calling(*calls: ToolCallPart) -> FunctionModel:
    """Return a model that makes the calls one after the other, and then answers."""

    def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        made = sum(isinstance(message, ModelResponse) for message in messages)
        return ModelResponse(parts=[calls[made] if made < len(calls) else TextPart('That is all. \U0001f600')])

    return FunctionModel(respond)


def call(number: int, tool: str, **arguments: Any) -> ToolCallPart:
    return ToolCallPart(tool, arguments, tool_call_id=f'call-{number}')


async def make(store: Any, prefix: str) -> None:
    def persisted(name: str) -> list[Any]:
        return [StepPersistence(store=store, run_id=prefix + name, agent_name='librarian', metadata={'team': 'ä'})]

    child = Agent(calling(call(1, 'look_up')), capabilities=persisted('child'))

    @child.tool_plain
    def look_up() -> str:
        return TEXT

    parent = Agent(
        calling(
            call(1, 'delegate'),
            call(2, 'picture'),
            call(3, 'again'),
            call(4, 'again'),
            call(5, 'pay'),
            call(6, 'colliding'),
        ),
        capabilities=persisted('parent'),
    )

    @parent.tool_plain
    async def delegate() -> str:
        return (await child.run('Look it up.')).output

    @parent.tool_plain
    def picture() -> BinaryContent:
        return BinaryContent(IMAGE, media_type='image/png')

    attempts: list[int] = []

    @parent.tool_plain
    def again() -> dict[str, Any]:
        attempts.append(1)
        if len(attempts) == 1:
            raise ModelRetry('once more')
        return {'n': 1, 'nested': [None, 1.5, {'deep': True}]}

    @parent.tool
    async def pay(ctx: RunContext[None]) -> str:
        await annotate_tool_effect(store, ctx, idempotency_key='pay-1', effect_summary='charge 5 cents')
        return 'paid'

    @parent.tool_plain
    def colliding() -> dict[str, Any]:
        # Taken for a part with large text, whose own values are then in the way of the marker's.
        return {
            'part_kind': 'mine',
            'content': TEXT,
            'uri': 'my own',
            '__harness_external_uri__': 'mine as well',
            '__harness_external_marker_format__': 'mine too',
        }

    image = BinaryContent(IMAGE[::-1], media_type='image/jpeg', vendor_metadata={'detail': 'high'})
    await parent.run([TEXT, 'What is it?', image], conversation_id='conversation-1')
    await Agent(calling(), capabilities=persisted('next')).run('And now?', conversation_id='conversation-1')

    failing = Agent(calling(call(1, 'broken')), capabilities=persisted('failing'))

    @failing.tool_plain
    def broken() -> str:
        raise OutOfOrder('out of order')

    with suppress(OutOfOrder):
        await failing.run('Break it.')
    await make_by_hand(store, prefix)
    await make_lookalike(persisted)


async def make_by_hand(store: Any, prefix: str) -> None:
    """Write records without keys: another run of the peer could not tell them from those of a crash."""
    start = datetime(2026, 3, 1, 12, len(prefix), tzinfo=UTC)
    now = start.astimezone(timezone(timedelta(hours=9)))
    by_hand = f'{prefix}by-hand'
    await store.register_run(RunRecord(run_id=by_hand, started_at=start, metadata={'a.b': 'c'}))
    for index, kind in enumerate(['run_started', 'model_request_started', 'model_request_started']):
        event = StepEvent(run_id=by_hand, kind=kind, step_index=index // 2, timestamp=now + timedelta(seconds=index))
        await store.append_event(event)
    for tool_call_id in ('call-2', 'call-1'):
        await store.record_tool_effect(
            ToolEffectRecord(
                tool_call_id=tool_call_id, tool_name='pay', run_id=by_hand, status='started', started_at=start
            )
        )
    for second in (0.5, 0.5, 3):
        asked = ModelRequest(parts=[UserPromptPart(f'asked at {second}', timestamp=start)])
        await store.save_snapshot(
            ContinuableSnapshot(
                run_id=by_hand, step_index=0, messages=[asked], timestamp=start + timedelta(seconds=second)
            )
        )
    # Never registered.
    await store.append_event(StepEvent(run_id=f'{prefix}stray', kind='run_started', step_index=0, timestamp=start))


async def make_lookalike(persisted: Any) -> None:
    lookalike = Agent(calling(call(1, 'marker')), capabilities=persisted('lookalike'))

    @lookalike.tool_plain
    def marker() -> dict[str, Any]:
        return {'__harness_external_media__': True, 'note': 'not a marker', '__harness_external_literal__': {'a': 1}}

    await lookalike.run('Fool me.')


NAMES = ('parent', 'child', 'next', 'failing', 'by-hand', 'stray', 'lookalike')


async def view(store: Any, prefixes: Sequence[str]) -> dict[str, Any]:
    run_ids = [prefix + name for prefix in prefixes for name in NAMES]
    return {
        'listed': [record.run_id for record in await store.list_runs()],
        'runs': {run_id: await view_of_run(store, run_id) for run_id in run_ids},
    }


async def view_of_run(store: Any, run_id: str) -> dict[str, Any]:
    record = await store.get_run(run_id=run_id)
    effects = [await store.get_tool_effect(run_id=run_id, tool_call_id=call_id) for call_id in TOOL_CALLS]
    return {
        'record': None if record is None else asdict(record),
        'events': [asdict(event) for event in await store.list_events(run_id=run_id)],
        'effects': [asdict(effect) for effect in effects if effect is not None],
        'unresolved': [item.tool_call_id for item in await store.list_unresolved_tool_effects(run_id=run_id)],
        'snapshots': [
            {
                **{name: value for name, value in vars(snapshot).items() if name != 'messages'},
                'messages': ModelMessagesTypeAdapter.dump_json(snapshot.messages).decode(),
            }
            for snapshot in await store.list_snapshots(run_id=run_id, include_interrupted=True)
        ],
    }


async def made(backend: str, place: str, prefixes: Sequence[str]) -> dict[str, Any]:
    async with AsyncExitStack() as stack:
        store = await opened(backend, place, stack)
        await make(store, prefixes[-1])
        return await view(store, prefixes)


async def opened(backend: str, place: str, stack: AsyncExitStack) -> Any:
    from pydantic_ai_harness import step_persistence

    if backend == 'file':
        return step_persistence.FileStepStore(place)
    if backend == 'sqlite':
        return step_persistence.SqliteStepStore(database=place)
    if backend == 'mongo':
        from pydantic_ai_harness.media import MongoMediaStore
        from pydantic_ai_harness.step_persistence import MongoStepStore
        from pymongo import AsyncMongoClient

        url, _, database = place.rpartition('/')
        client = await stack.enter_async_context(AsyncMongoClient[Any](url))
        # The default, but for chunks that are small enough to need several.
        media = MongoMediaStore(client=client, database=database, chunk_size_bytes=LARGE // 3)
        return MongoStepStore(client=client, database=database, media_store=media)
    import asyncpg
    from pydantic_ai_harness.step_persistence import PostgresStepStore

    dsn, _, table = place.rpartition('?table=')
    return PostgresStepStore(await stack.enter_async_context(asyncpg.create_pool(dsn, min_size=1)), table=table)


if __name__ == '__main__':
    _, backend, place, output, *prefixes = sys.argv
    seen = asyncio.run(made(backend, place, prefixes or ['']))
    Path(output).write_text(json.dumps(seen, default=datetime.isoformat))
