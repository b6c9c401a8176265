from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from harness_temporal.testing import MaintenanceConformance, OpenStore, StepStoreConformance
from tests.conformance.opening import closing_what_it_opens
from tests.conformance.places import UsedSchema, is_further_case, new_schema, used_schema


@pytest.fixture(scope='module')
def used(postgres: str) -> Iterator[UsedSchema]:
    with used_schema(postgres) as used:
        yield used


@pytest.mark.postgres
class TestPostgresStepStore(StepStoreConformance, MaintenanceConformance):
    persistent = True

    @pytest.fixture
    async def open_store(
        self, postgres: str, used: UsedSchema, request: pytest.FixtureRequest
    ) -> AsyncIterator[OpenStore]:
        from harness_temporal.stores import PostgresStepStore

        place = used.taken() if is_further_case(request.node) else new_schema(postgres)
        async with (
            place as schema,
            closing_what_it_opens(
                lambda bound: PostgresStepStore(postgres, schema=schema, max_snapshots_per_run=bound)
            ) as open_store,
        ):
            yield open_store
