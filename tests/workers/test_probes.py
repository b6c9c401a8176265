"""What a probe is told, and the server that tells it."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness_temporal.conversations import SavedConversation, SqliteConversationStore
from harness_temporal.errors import ConfigurationError, StoreError, StoreUnavailableError
from harness_temporal.hosting.worker import stores_of
from harness_temporal.media import DiskMediaStore
from harness_temporal.records import RunRecord
from harness_temporal.step_persistence import InMemoryStepStore
from tests.workers.processes import fetch
from workers.drain import DRAIN_FAILED, DrainLimit
from workers.http import Answer, serving_http
from workers.readiness import Readiness


class AwayStore(InMemoryStepStore):
    """A store that cannot be reached while `away` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.away = True
        self.asked = 0

    async def get_run(self, *, run_id: str) -> RunRecord | None:
        self.asked += 1
        if self.away:
            raise StoreUnavailableError('AwayStore', 'postgresql://user:secret@host is away.')
        return await super().get_run(run_id=run_id)


class HangingMedia:
    """A media store that never answers."""

    async def exists(self, uri: str) -> bool:
        await asyncio.Event().wait()
        return True


def client(*identities: str) -> Any:
    """A client whose server knows these workers."""

    async def describe(request: Any, timeout: Any) -> Any:
        return SimpleNamespace(pollers=[SimpleNamespace(identity=identity) for identity in identities])

    async def check_health(timeout: Any) -> bool:
        return True

    return SimpleNamespace(
        identity='us',
        namespace='default',
        workflow_service=SimpleNamespace(describe_task_queue=describe),
        service_client=SimpleNamespace(check_health=check_health),
    )


async def test_a_worker_that_polls_and_whose_stores_answer_is_ready() -> None:
    store = AwayStore()
    readiness = Readiness(client('other', 'us'), 'queue', [store], [], None)
    answer = await readiness.answer()
    assert answer.status == 503
    assert json.loads(answer.body) == {'ready': False, 'failures': {'AwayStore': 'StoreUnavailableError'}}
    store.away = False
    # A failure does not stand; an answer does, however many ask.
    answers = await asyncio.gather(*(readiness.answer() for _ in range(5)))
    assert {answer.status for answer in answers} == {200}
    assert store.asked == 2


class AwayConversations(SqliteConversationStore):
    """A store of conversations that cannot be reached while `away` is set."""

    away = True

    async def get(self, *, conversation_id: str) -> SavedConversation:
        if self.away:
            raise StoreUnavailableError('AwayConversations', 'it is away.')
        return await super().get(conversation_id=conversation_id)


async def test_a_worker_is_ready_when_its_conversations_answer(tmp_path: Path) -> None:
    conversations = AwayConversations(tmp_path / 'conversations.db')
    readiness = Readiness(client('us'), 'queue', [], [], conversations)
    assert await readiness.failures() == {'AwayConversations': 'StoreUnavailableError'}
    conversations.away = False
    assert await readiness.failures() == {}
    await conversations.aclose()


async def test_the_media_of_conversations_are_among_what_answers_and_is_closed(tmp_path: Path) -> None:
    media = DiskMediaStore(tmp_path / 'media')
    conversations = SqliteConversationStore(tmp_path / 'conversations.db', media_store=media)
    async with stores_of([], None, conversations) as (_, media_stores):
        assert media_stores == [media]
    with pytest.raises(StoreError, match='closed'):
        await conversations.listing()


async def test_a_worker_that_does_not_poll_is_not_ready() -> None:
    assert await Readiness(client('other'), 'queue', [], [], None).failures() == {'temporal': 'NotPollingError'}


async def test_what_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr('workers.readiness.CHECK_TIMEOUT', 0.05)
    media: Any = HangingMedia()
    assert await Readiness(client('us'), 'queue', [], [media, media], None).failures() == {
        'HangingMedia': 'TimeoutError',
        'HangingMedia 2': 'TimeoutError',
    }


async def test_a_worker_that_stops_is_not_ready_at_once() -> None:
    readiness = Readiness(client('us'), 'queue', [], [], None)
    assert await readiness.failures() == {}
    readiness.stop()
    assert await readiness.failures() == {'worker': 'it is stopping'}


@asynccontextmanager
async def served() -> Any:
    async def fine() -> Answer:
        return Answer(b'fine', content_type='text/plain')

    async def broken() -> Answer:
        raise RuntimeError('secret')

    async with serving_http('127.0.0.1:0', {'/fine': fine, '/broken': broken}) as url:
        yield url


@pytest.mark.parametrize(
    ('path', 'expected'),
    [('/fine', (200, 'fine')), ('/fine?x=1', (200, 'fine')), ('/other', (404, '{}')), ('/broken', (500, '{}'))],
)
async def test_http_answers(path: str, expected: tuple[int, str]) -> None:
    async with served() as url:
        assert await asyncio.to_thread(fetch, url + path) == expected


@pytest.mark.parametrize(
    ('sent', 'answered'),
    [
        (b'POST /fine HTTP/1.1\r\n\r\n', b'HTTP/1.1 405'),
        (b'\x00\xff\r\n\r\n', b'HTTP/1.1 404'),
        # Nobody needs so long a request: the connection ends.
        (b'GET /' + b'x' * 100_000, b''),
        (b'GET /fine', b''),
    ],
)
async def test_http_bears_any_request(sent: bytes, answered: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr('workers.http.REQUEST_TIMEOUT', 0.1)
    async with served() as url:
        reader, writer = await asyncio.open_connection('127.0.0.1', int(url.rpartition(':')[2]))
        writer.write(sent)
        try:
            given = await reader.read()
        except ConnectionResetError:
            given = b''
        assert given.startswith(answered)
        assert bool(given) == bool(answered)
        writer.close()


async def test_an_address_that_is_taken_is_named() -> None:
    async with served() as url:
        with pytest.raises(ConfigurationError, match='HARNESS_HTTP_ADDRESS'):
            async with serving_http(url.removeprefix('http://'), {}):
                pass


async def test_a_worker_that_does_not_stop_is_cut_off() -> None:
    ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    loop = asyncio.get_running_loop()
    limit = DrainLimit(0.01, exit=lambda status: loop.call_soon_threadsafe(ended.set_result, status))
    limit.start()
    assert await asyncio.wait_for(ended, 10) == DRAIN_FAILED
