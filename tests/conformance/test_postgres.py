from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import uuid4

import pytest

from harness_temporal.testing import MaintenanceConformance, OpenStore, StepStoreConformance
from tests.conformance.opening import closing_what_it_opens, drop_schema


@pytest.mark.postgres
class TestPostgresStepStore(StepStoreConformance, MaintenanceConformance):
    persistent = True

    @pytest.fixture
    async def open_store(self, postgres: str) -> AsyncIterator[OpenStore]:
        from harness_temporal.stores import PostgresStepStore

        schema = f'conformance_{uuid4().hex}'
        async with closing_what_it_opens(
            lambda bound: PostgresStepStore(postgres, schema=schema, max_snapshots_per_run=bound)
        ) as open_store:
            yield open_store
        await drop_schema(postgres, schema)
