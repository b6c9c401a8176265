"""Where keys come from, and how they change."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from anyio import to_thread

from harness_temporal.encryption import Key, KeyRing, keys
from harness_temporal.encryption.keys import KEYS_VARIABLE, REFRESH_SECONDS, RETRY_SECONDS
from harness_temporal.errors import ConfigurationError

# The same in every process: they are in the names of tests.
NEW, OLD = Key('new', b'n' * 32), Key('old', b'o' * 32)


class Clock:
    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(keys, 'time', clock)
    return clock


async def test_keys_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEYS_VARIABLE, f'{NEW.dump()} {OLD.dump()}')
    ring = KeyRing.from_environment()
    assert await ring.newest() == NEW
    assert await ring.get('old') == OLD
    assert await ring.get('other') is None


async def test_keys_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / 'keys'
    path.write_text(f'# of 2026\n{NEW.dump()}\n\n{OLD.dump()}  # until spring\n')
    assert await KeyRing.from_file(path).newest() == NEW
    assert await KeyRing.from_file(path).get('old') == OLD


async def test_keys_of_a_service(clock: Clock) -> None:
    given: list[Sequence[Key]] = [[OLD]]
    asked = 0

    async def source() -> Sequence[Key]:
        nonlocal asked
        asked += 1
        return given[0]

    ring = KeyRing(source)
    assert [await ring.newest() for _ in range(3)] == [OLD] * 3
    assert asked == 1
    given[0] = [NEW, OLD]
    clock.now += REFRESH_SECONDS
    assert await ring.newest() == NEW
    assert asked == 2


async def test_an_unknown_key_makes_the_ring_ask_again_but_not_for_each_payload(clock: Clock) -> None:
    given: list[Sequence[Key]] = [[OLD]]
    asked = 0

    def source() -> Sequence[Key]:
        nonlocal asked
        asked += 1
        return given[0]

    ring = KeyRing(source)
    assert await ring.get('new') is None
    given[0] = [OLD, NEW]
    assert await ring.get('new') is None
    assert asked == 1
    clock.now += RETRY_SECONDS
    assert await ring.get('new') == NEW
    assert await ring.newest() == OLD, 'it decrypts before it encrypts'


async def test_a_service_that_is_away_does_not_stop_who_has_keys(clock: Clock) -> None:
    away = False

    def source() -> Sequence[Key]:
        if away:
            raise ConnectionError('away')
        return [OLD]

    ring = KeyRing(source)
    await ring.newest()
    away = True
    clock.now += REFRESH_SECONDS
    assert await ring.newest() == OLD
    with pytest.raises(ConnectionError):
        await KeyRing(source).newest()


@pytest.mark.parametrize(
    ('text', 'message'),
    [
        ('', 'There are no encryption keys in the environment variable'),
        ('# nothing', 'There are no encryption keys'),
        ('secret', 'key 1 in the environment variable HARNESS_PAYLOAD_KEYS is not `id:base64`'),
        ('a:secret!', "'a' in the environment variable HARNESS_PAYLOAD_KEYS is not base64"),
        ('a:c2VjcmV0', "'a' has 6 bytes instead of 32"),
        (f'a/b{NEW.dump()[3:]}', '1 to 64 of'),
        (f'{NEW.dump()} {NEW.dump()}', 'the same id'),
    ],
)
async def test_what_is_no_key_is_refused_and_not_shown(
    monkeypatch: pytest.MonkeyPatch, text: str, message: str
) -> None:
    monkeypatch.setenv(KEYS_VARIABLE, text)
    with pytest.raises(ConfigurationError) as raised:
        await KeyRing.from_environment().newest()
    assert message in str(raised.value)
    assert 'secret!' not in str(raised.value)
    assert NEW.dump()[4:] not in str(raised.value)


async def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match='nowhere'):
        await KeyRing.from_file(tmp_path / 'nowhere').newest()


def test_a_ring_serves_event_loops_of_several_threads_at_once() -> None:
    asked = threading.Barrier(2, timeout=20)

    async def source() -> Sequence[Key]:
        # Both loops ask at once: neither waits for what the other one holds.
        await to_thread.run_sync(asked.wait)
        return [NEW]

    ring = KeyRing(source)
    with ThreadPoolExecutor(2) as threads:
        found = [threads.submit(asyncio.run, ring.newest()) for _ in range(2)]
        assert [future.result() for future in found] == [NEW, NEW]


async def test_a_source_without_keys_is_refused() -> None:
    with pytest.raises(ConfigurationError, match='gave none'):
        await KeyRing(lambda: []).newest()


def test_a_secret_is_not_in_the_repr() -> None:
    key = Key('k1', b'0123456789abcdef' * 2)
    assert '0123456789' not in repr(key)
    assert repr(key) == "Key(id='k1')"


def test_generated_keys_differ() -> None:
    assert Key.generate('a').secret != Key.generate('a').secret
