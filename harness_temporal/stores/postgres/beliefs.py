"""What this process believes the database holds, so that it need not ask. The database checks it at every use."""

from __future__ import annotations

from dataclasses import dataclass

from harness_temporal.recent import Recent
from harness_temporal.records import ToolEffectRecord
from harness_temporal.stores.known_links import KnownLinks

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
