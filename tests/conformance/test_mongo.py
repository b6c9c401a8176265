from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from harness_temporal.testing import MaintenanceConformance, OpenStore, StepStoreConformance
from tests.conformance.opening import closing_what_it_opens


@pytest.mark.mongo
class TestMongoStepStore(StepStoreConformance, MaintenanceConformance):
    persistent = True

    @pytest.fixture
    async def open_store(self, mongo: str, database: str) -> AsyncIterator[OpenStore]:
        from harness_temporal.stores import MongoStepStore

        async with closing_what_it_opens(
            lambda bound: MongoStepStore(db_url=mongo, database=database, max_snapshots_per_run=bound)
        ) as open_store:
            yield open_store
