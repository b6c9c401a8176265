from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from harness_temporal.stores.file import FileStepStore
from harness_temporal.testing import MaintenanceConformance, OpenStore, StepStoreConformance
from tests.conformance.opening import closing_what_it_opens


class TestFileStepStore(StepStoreConformance, MaintenanceConformance):
    persistent = True

    @pytest.fixture
    async def open_store(self, tmp_path: Path) -> AsyncIterator[OpenStore]:
        async with closing_what_it_opens(
            lambda bound: FileStepStore(tmp_path / 'runs', max_snapshots_per_run=bound)
        ) as open_store:
            yield open_store
