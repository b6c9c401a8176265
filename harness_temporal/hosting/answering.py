"""Ask stores for what is not there: that takes no time on any store, however much is in it."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from harness_temporal.conversations import ConversationStore
from harness_temporal.errors import ConversationNotFoundError
from harness_temporal.media import MediaStore
from harness_temporal.media.uri import uri_of
from harness_temporal.stores import StepStore

_NO_RUN: Final = 'harness-probe'
_NO_CONVERSATION: Final = 'harness-probe'
_NO_BLOB: Final = uri_of('0' * 64)


async def ask_store(store: StepStore) -> None:
    """Wait until the store answers. Raises what it raises."""
    await store.get_run(run_id=_NO_RUN)


async def ask_conversation_store(store: ConversationStore) -> None:
    """Wait until the conversation store answers. Raises what it raises."""
    with suppress(ConversationNotFoundError):
        await store.get(conversation_id=_NO_CONVERSATION)


async def ask_media_store(store: MediaStore) -> None:
    """Wait until the media store answers. Raises what it raises."""
    await store.exists(_NO_BLOB)
