"""What every topic of the conformance suite builds on."""

from __future__ import annotations

from typing import ClassVar, Protocol

import pytest
import pytest_asyncio

from harness_temporal.stores.protocol import StepStore


class OpenStore(Protocol):
    """What the `open_store` fixture gives: each call opens one more store on the same place.

    The place is new for each test. The fixture closes what it opened, also what a test closed already.
    """

    async def __call__(self, *, max_snapshots_per_run: int | None = None) -> StepStore:
        """Open a store."""
        ...


@pytest.mark.asyncio
class StoreTests:
    """Base of the topics. A backend's test class provides the fixture `open_store` and declares its features."""

    persistent: ClassVar[bool] = True
    """Whether a second store on the same place holds what the first one wrote.

    Declared, never detected: a store that says yes and loses data fails.
    """

    @pytest_asyncio.fixture
    async def store(self, open_store: OpenStore) -> StepStore:
        """Open the one store that most tests need."""
        return await open_store()
