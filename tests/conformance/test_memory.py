from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from harness_temporal.stores.memory import InMemoryStepStore
from harness_temporal.testing import MaintenanceConformance, OpenStore, StepStoreConformance
from tests.conformance.opening import closing_what_it_opens


class TestInMemoryStepStore(StepStoreConformance, MaintenanceConformance):
    persistent = False

    @pytest.fixture
    async def open_store(self) -> AsyncIterator[OpenStore]:
        async with closing_what_it_opens(lambda bound: InMemoryStepStore(max_snapshots_per_run=bound)) as open_store:
            yield open_store
