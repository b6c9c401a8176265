"""Stores whose content is encrypted, with the key ring that the settings name."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness_temporal.cli import importing
from harness_temporal.encryption import Key, KeyRing
from harness_temporal.stores import StepStore
from harness_temporal.stores.opening import open_store
from tests.cli.conftest import cli, given
from tests.cli.seeding import a_run, committed, cut_off, said

STORE = 'sqlite:runs.db'
SETTING = 'HARNESS_STORE_KEY_RING, or `key_ring` in [store] of harness.toml'
SECRET = 'The treasure is under the oak'
MODULE = """
from harness_temporal.encryption import KeyRing
ring = KeyRing.from_file('keys')
nothing = 1
"""


@pytest.fixture(autouse=True)
def _encrypted_runs(_in_an_empty_folder: None) -> None:
    key = Key.generate('k1')
    Path('keys').write_text(key.dump())
    Path('my_keys.py').write_text(MODULE)
    batches = [a_run('run-1'), said('run-1', SECRET, 'Hi')], cut_off('run-2')
    committed(STORE, *batches, keys=KeyRing.of(key))
    assert SECRET.encode() not in Path('runs.db').read_bytes()


def test_content_is_read_and_written_with_the_key_ring_of_the_settings() -> None:
    Path('harness.toml').write_text(f'[store]\nurl = "{STORE}"\nkey_ring = "my_keys:ring"\n')
    state = given('state', 'export', 'run-1', '-o', 'state.json')
    assert SECRET in Path('state.json').read_text()
    assert state['messages'] == 2
    assert given('store', 'check')['problems'] == []
    given('effects', 'resolve', 'run-2', 'call-1', '--completed', f'"{SECRET}"')
    kept = given('state', 'import', 'state.json')['run_id']
    assert given('runs', 'diff', 'run-1', kept)['shared_messages'] == 2
    written = b''.join(path.read_bytes() for path in Path().glob('runs.db*'))
    assert SECRET.encode() not in written


def test_without_the_key_ring_the_setting_is_named() -> None:
    done = cli('state', 'export', 'run-1', '--store', STORE)
    assert done.status == 1
    assert "encrypted with the key 'k1', and this store has no keys" in done.stderr
    assert SETTING in done.stderr
    assert SETTING in cli('store', 'check', '--store', STORE).stderr


def test_a_key_ring_without_the_key_is_named_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('HARNESS_STORE_KEY_RING', 'my_keys:ring')
    Path('keys').write_text(Key.generate('k2').dump())
    done = cli('state', 'export', 'run-1', '--store', STORE)
    assert "the key 'k1', which is not among the keys" in done.stderr
    assert SETTING in done.stderr


def test_what_is_imported_is_encrypted_with_the_key_ring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('HARNESS_STORE_KEY_RING', 'my_keys:ring')
    Path('source').mkdir()
    given_keys: list[KeyRing | None] = []

    def opened(url: str, *, keys: KeyRing | None = None) -> StepStore:
        given_keys.append(keys)
        return open_store(url, keys=keys)

    monkeypatch.setattr(importing, 'open_store', opened)
    given('import', 'file:source', 'file:target')
    assert [type(keys) for keys in given_keys] == [KeyRing]


@pytest.mark.parametrize(
    ('named', 'message'),
    [
        ('my_keys', "'my_keys' does not name an `KeyRing` as `module:attribute`."),
        ('my_keys:nothing', "'my_keys:nothing' is a int, not a `KeyRing`."),
        ('nowhere:ring', "'nowhere' cannot be loaded"),
    ],
)
def test_what_is_no_key_ring_is_told(monkeypatch: pytest.MonkeyPatch, named: str, message: str) -> None:
    monkeypatch.setenv('HARNESS_STORE_KEY_RING', named)
    done = cli('runs', 'list', '--store', STORE)
    assert (done.status, message in done.stderr) == (1, True)
