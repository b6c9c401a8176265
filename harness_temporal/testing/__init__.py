"""The conformance suites of `StepStore` and of media stores, for stores of this package and of others.

A store that passes can be used wherever this package takes one. In a test module:

    import pytest_asyncio
    from harness_temporal.testing import StepStoreConformance

    from my_package import MyStore


    class TestMyStore(StepStoreConformance):
        persistent = True  # a second store on the same place finds what the first one wrote

        @pytest_asyncio.fixture
        async def open_store(self, tmp_path):
            opened = []

            async def open_store(*, max_snapshots_per_run=None):
                store = MyStore(tmp_path / 'runs', max_snapshots_per_run=max_snapshots_per_run)
                opened.append(store)
                return store

            yield open_store
            for store in opened:
                await store.aclose()

It needs `pytest` and `pytest-asyncio`, in its strict or its auto mode. To take the rules of one topic only, derive from
that topic's class. `MediaStoreConformance`, `MemoryStoreConformance` and `ConversationStoreConformance` are used
in the same way, with the fixtures `open_media`, `open_memory` and `open_place`.
"""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite(
    *(
        f'{__name__}.{module}'
        for module in (
            'base',
            'batches',
            'concurrency',
            'content',
            'conversations',
            'effects',
            'events',
            'maintenance',
            'media',
            'memory',
            'reopening',
            'responses',
            'retention',
            'runs',
            'snapshots',
        )
    )
)

from harness_temporal.testing.base import OpenStore, StoreTests  # noqa: E402
from harness_temporal.testing.batches import BatchesConformance  # noqa: E402
from harness_temporal.testing.concurrency import ConcurrencyConformance  # noqa: E402
from harness_temporal.testing.content import ContentConformance  # noqa: E402
from harness_temporal.testing.conversations import ConversationStoreConformance, OpenPlace, Place  # noqa: E402
from harness_temporal.testing.effects import EffectsConformance  # noqa: E402
from harness_temporal.testing.events import EventsConformance  # noqa: E402
from harness_temporal.testing.maintenance import MaintenanceConformance  # noqa: E402
from harness_temporal.testing.media import MediaStoreConformance, OpenMediaStore  # noqa: E402
from harness_temporal.testing.memory import MemoryStoreConformance, OpenMemoryStore  # noqa: E402
from harness_temporal.testing.reopening import ReopeningConformance  # noqa: E402
from harness_temporal.testing.responses import ResponsesConformance  # noqa: E402
from harness_temporal.testing.retention import RetentionConformance  # noqa: E402
from harness_temporal.testing.runs import RunsConformance  # noqa: E402
from harness_temporal.testing.snapshots import SnapshotsConformance  # noqa: E402

__all__ = [
    'BatchesConformance',
    'ConcurrencyConformance',
    'ContentConformance',
    'ConversationStoreConformance',
    'EffectsConformance',
    'EventsConformance',
    'MaintenanceConformance',
    'MediaStoreConformance',
    'MemoryStoreConformance',
    'OpenMediaStore',
    'OpenMemoryStore',
    'OpenPlace',
    'OpenStore',
    'Place',
    'ReopeningConformance',
    'ResponsesConformance',
    'RetentionConformance',
    'RunsConformance',
    'SnapshotsConformance',
    'StepStoreConformance',
    'StoreTests',
]


class StepStoreConformance(
    RunsConformance,
    EventsConformance,
    SnapshotsConformance,
    EffectsConformance,
    ResponsesConformance,
    BatchesConformance,
    ContentConformance,
    RetentionConformance,
    ConcurrencyConformance,
    ReopeningConformance,
):
    """Every topic. Derive from it, provide `open_store`, and declare `persistent`."""
