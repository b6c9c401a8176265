"""What a reader of another library's store gives: its records as they are stored, nothing decoded yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

Fields: TypeAlias = Mapping[str, object]
"""One stored record by the names of its fields, not checked yet."""


@dataclass(frozen=True)
class SnapshotRow:
    """A snapshot as it is stored."""

    fields: Fields
    messages: Sequence[str]
    """The JSON of each message, with content that is kept elsewhere still as markers."""


class RunSource(Protocol):
    """Reads the runs of one store and changes nothing in it.

    Every method about a run raises `RunImportError` when what is stored of it cannot be read, and another `StoreError`
    when the store itself cannot.
    """

    async def run_ids(self) -> Sequence[str]:
        """Return the ids of all runs of which there is any record, also those that were never registered.

        Raises:
            ConfigurationError: There is no such store.
        """
        ...

    async def run(self, run_id: str) -> Fields | None:
        """Return the run's record."""
        ...

    async def events(self, run_id: str) -> Sequence[Fields]:
        """Return the run's events in order."""
        ...

    async def tool_effects(self, run_id: str) -> Sequence[Fields]:
        """Return the latest record of each tool call, by when the call was first recorded."""
        ...

    async def snapshot_numbers(self, run_id: str) -> Sequence[int]:
        """Return the numbers of the run's snapshots in order."""
        ...

    async def snapshot(self, run_id: str, number: int) -> SnapshotRow:
        """Return one snapshot."""
        ...

    async def blob(self, digest: str) -> bytes | None:
        """Return the content kept under this SHA-256, in hexadecimal."""
        ...

    async def aclose(self) -> None:
        """Release what the reader opened."""
        ...
