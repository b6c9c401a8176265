"""Ask stores for what is not there: that takes no time on any store, however much is in it."""

from __future__ import annotations

from typing import Final

from harness_temporal.media import MediaStore
from harness_temporal.media.uri import uri_of
from harness_temporal.stores import StepStore

_NO_RUN: Final = 'harness-probe'
_NO_BLOB: Final = uri_of('0' * 64)


async def ask_store(store: StepStore) -> None:
    """Wait until the store answers. Raises what it raises."""
    await store.get_run(run_id=_NO_RUN)


async def ask_media_store(store: MediaStore) -> None:
    """Wait until the media store answers. Raises what it raises."""
    await store.exists(_NO_BLOB)
