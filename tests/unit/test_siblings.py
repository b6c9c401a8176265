from __future__ import annotations

import asyncio

import pytest

from harness_temporal.temporal import siblings


async def test_an_attempt_without_siblings_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(siblings, 'END_TOGETHER_SECONDS', 30.0)
    with siblings.under_way('run'):
        await asyncio.wait_for(siblings.end_together('another'), timeout=5)
    await asyncio.wait_for(siblings.end_together('run'), timeout=5)


async def test_an_attempt_ends_with_the_last_of_its_siblings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(siblings, 'END_TOGETHER_SECONDS', 30.0)
    ended: list[str] = []

    async def attempt(name: str, body: asyncio.Event) -> None:
        with siblings.under_way('run'):
            await body.wait()
        await siblings.end_together('run')
        ended.append(name)

    quick, slow = asyncio.Event(), asyncio.Event()
    both = asyncio.gather(attempt('quick', quick), attempt('slow', slow))
    await asyncio.sleep(0)
    quick.set()
    for _ in range(10):
        await asyncio.sleep(0)
    assert ended == []
    slow.set()
    await asyncio.wait_for(both, timeout=5)
    assert sorted(ended) == ['quick', 'slow']


async def test_an_attempt_does_not_wait_long_for_a_slow_sibling() -> None:
    with siblings.under_way('run'):
        await asyncio.wait_for(siblings.end_together('run'), timeout=5)
