"""What this process believes the database holds, so that it need not ask. The database checks it at every use."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from harness_temporal.errors import HistoryMissingError
from harness_temporal.recent import Recent
from harness_temporal.records import ToolEffectRecord
from harness_temporal.stores.known_links import KnownLinks

T = TypeVar('T')
_ATTEMPTS: Final = 6
"""How often a write finds that a collector got ahead of it, before it is taken to build on what is not there at all."""
LedgerKey = tuple[str, str]
"""A run id and a ledger key."""


def ledger_key(record: ToolEffectRecord) -> LedgerKey:
    """Return what names the record's ledger entry."""
    return record.run_id, record.ledger_key


@dataclass(frozen=True)
class LedgerEntry:
    """A ledger entry as it was at one revision."""

    record: ToolEffectRecord
    revision: str


class Beliefs(KnownLinks):
    """The links and ledger entries that this process wrote or read lately."""

    def __init__(self) -> None:
        super().__init__()
        self._entries = Recent[LedgerKey, LedgerEntry](4_096)

    def entry(self, key: LedgerKey) -> LedgerEntry | None:
        """Return the ledger entry, as far as is known."""
        return self._entries.get(key)

    def saw_entry(self, entry: LedgerEntry) -> None:
        """Remember an entry that is in the database. One with a value may be large and will hardly change: not it."""
        key = ledger_key(entry.record)
        if entry.record.value is None:
            self._entries.put(key, entry)
        else:
            self._entries.drop(key)

    async def checked(self, write: Callable[[], Awaitable[T]]) -> T:
        """Write what is not known to be stored, and all of it if that is not enough.

        A message that this process knew may have been collected, and one that a statement of this very write found may
        be collected before the next statement refers to it.

        Raises:
            HistoryMissingError: What is written builds on a history that is not stored.
        """
        for _ in range(_ATTEMPTS - 1):
            try:
                return await write()
            except HistoryMissingError:
                self.forget_links()
        return await write()
