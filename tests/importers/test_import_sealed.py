"""Runs are imported into a store that encrypts, and the import can be repeated."""

from __future__ import annotations

from pathlib import Path

from harness_temporal.encryption import Key, KeyRing
from harness_temporal.stores import SqliteStepStore
from tests.importers.comparing import PeerStore, assert_same, contents


async def test_what_is_imported_is_encrypted_and_the_same_when_it_is_imported_again(
    made_files: PeerStore, tmp_path: Path
) -> None:
    old, new = Key('old', b'o' * 32), Key('new', b'n' * 32)
    store = SqliteStepStore(tmp_path / 'runs.db', keys=KeyRing.of(old))
    report = await made_files.import_into(store)
    assert report.failures == []
    await assert_same(store, made_files)
    imported = await contents(store, made_files.run_ids)
    await store.aclose()
    rotated = SqliteStepStore(tmp_path / 'runs.db', keys=KeyRing.of(new, old))
    report = await made_files.import_into(rotated)
    assert report.failures == []
    assert await contents(rotated, made_files.run_ids) == imported
    await rotated.aclose()
