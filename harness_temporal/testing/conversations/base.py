"""What every topic of the suite for conversation stores builds on."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar, Literal, Protocol

import pytest
import pytest_asyncio

from harness_temporal.conversations.protocol import ConversationStore
from harness_temporal.conversations.records import ConversationSummary
from harness_temporal.stores.protocol import BaseStepStore
from harness_temporal.testing.samples import (
    LONG_KEY,
)

HOUR = timedelta(hours=1)
HELD_ID = 'conversation'
PATHS = {
    'parent': '../x',
    'absolute': '/etc/x',
    'inner parent': 'a/../b',
    'backslashes': '..\\x',
    'long': 'x' * 300,
    'long, other end': 'x' * 299 + 'y',
    'very long': LONG_KEY,
    'device': 'CON',
    'NUL': 'a\x00b',
    'empty': '',
    'composed': 'é',
    'decomposed': 'e\u0301',
    'upper case': 'A',
    'lower case': 'a',
    'lone surrogate': '\ud800',
    'replacement character': '\ufffd',
    'quotes': "'; DROP TABLE conversation_heads; --",
    'operator': '$set',
}


@dataclass(frozen=True)
class Place:
    """A conversation store, and a step store on the same database."""

    conversations: ConversationStore
    steps: BaseStepStore


class OpenPlace(Protocol):
    """What the `open_place` fixture gives: each call opens two more stores on the same database.

    The database is new for each test. The fixture closes what it opened, also what a test closed already.
    """

    async def __call__(self, *, lease: timedelta = timedelta(minutes=2)) -> Place:
        """Open two stores. A store of one machine has no lease and may ignore it."""
        ...


def a_conversation(conversation_id: str = HELD_ID, **fields: Any) -> ConversationSummary:
    """Make the summary of a conversation that was never saved."""
    return ConversationSummary(id=conversation_id, **fields)


async def ids(store: ConversationStore, query: str = '') -> list[str]:
    """Return the ids of what a search finds."""
    return [summary.id for summary in await store.listing(query=query)]


@pytest.mark.asyncio
class ConversationTests:
    """Base of the topics. A backend's test class provides the fixture `open_place`."""

    busy_by: ClassVar[Literal['process', 'lease']]
    """How the store knows that a conversation is busy."""

    @pytest_asyncio.fixture
    async def place(self, open_place: OpenPlace) -> Place:
        """Open the one place that most tests need."""
        return await open_place()

    @pytest_asyncio.fixture
    async def store(self, place: Place) -> ConversationStore:
        """Open the one store that most tests need."""
        return place.conversations
