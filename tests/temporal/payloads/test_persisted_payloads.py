"""How payloads look in Temporal histories and media stores, for ever.

A change here is a change of what is stored: keep reading the old form, under another encoding, and say so in the
changelog.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest
from temporalio.api.common.v1 import Payload

from harness_temporal.encryption.keys import KEYS_VARIABLE
from harness_temporal.media import DiskMediaStore
from harness_temporal.temporal.payloads import Key, KeyRing, PayloadError, PayloadStorage
from harness_temporal.temporal.payloads.cutting import cut
from harness_temporal.temporal.payloads.encryption import Sealer
from harness_temporal.temporal.payloads.errors import PayloadTooLargeError, PayloadUnreadableError
from harness_temporal.temporal.payloads.references import Reference
from harness_temporal.temporal.payloads.tree import group
from tests.temporal.payloads.test_cutting import KINDS, data_of, names

KEY = Key('k1', bytes(range(32)))
PLAIN = Payload(metadata={'encoding': b'json/plain'}, data=b'"' + b'x' * 2000 + b'"')


def digest(parts: list[bytes]) -> str:
    return hashlib.sha256(b''.join(len(part).to_bytes(8, 'big') + part for part in parts)).hexdigest()[:16]


def test_names() -> None:
    assert KEYS_VARIABLE == 'HARNESS_PAYLOAD_KEYS'
    errors: list[PayloadError] = [PayloadUnreadableError('x', 'y'), PayloadTooLargeError('x', 2, 1)]
    assert [error.type for error in errors] == ['PayloadUnreadableError', 'PayloadTooLargeError']
    assert all(error.non_retryable for error in errors)


def test_a_reference() -> None:
    payload = Reference(2, 5_000_000, bytes(range(32)), b'\x0a\x00').to_payload()
    assert payload.metadata == {'encoding': b'binary/harness-pieces-v1'}
    assert payload.data.hex() == '0200000000004c4b40' + bytes(range(32)).hex() + '0a00'
    assert Reference.of(payload) == Reference(2, 5_000_000, bytes(range(32)), b'\x0a\x00')


async def test_a_stored_payload(tmp_path: Path) -> None:
    [encoded] = await PayloadStorage(DiskMediaStore(tmp_path)).codec.encode([PLAIN])
    assert encoded.data.hex() == (
        f'0000000000000007d2{hashlib.sha256(PLAIN.data).hexdigest()}'
        + (b'\x0a\x16\x0a\x08encoding\x12\x0ajson/plain').hex()
    )
    assert (tmp_path / f'{hashlib.sha256(PLAIN.data).hexdigest()}.bin').read_bytes() == PLAIN.data


SEALED = (
    '000102030405060708090a0bfff479ee72e8ea61fe8a778487409703ba2e98f6'
    'd51ea26f96a14d2b18cbe0bb7757f9798c7e3c3892bcddb748cc4f'
)
PIECE = '7d5dbe83a78013cc73e069155d147168c41bc95bcea4c4a5b2474d80a90de8f1656c26'


def test_a_sealed_payload(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, 'urandom', lambda size: bytes(range(size)))
    sealed = Sealer(KEY).seal(Payload(metadata={'encoding': b'json/plain'}, data=b'"yes"'))
    assert sealed.metadata == {'encoding': b'binary/harness-sealed-v1', 'harness-key': b'k1'}
    assert sealed.data.hex() == SEALED


async def test_a_sealed_payload_of_before_is_read() -> None:
    sealed = Payload(
        metadata={'encoding': b'binary/harness-sealed-v1', 'harness-key': b'k1'}, data=bytes.fromhex(SEALED)
    )
    [payload] = await PayloadStorage(None, keys=KeyRing.of(KEY)).codec.decode([sealed])
    assert payload == Payload(metadata={'encoding': b'json/plain'}, data=b'"yes"')


def test_a_sealed_piece() -> None:
    assert Sealer(KEY).seal_piece(b'a piece').hex() == PIECE
    assert Sealer(KEY).open_piece(bytes.fromhex(PIECE)) == b'a piece'


def test_where_cuts_are() -> None:
    """Another place is no other format: everything can still be read. But nothing is shared with what is stored."""
    assert {kind: digest(cut(data_of(kind))) for kind in KINDS} == {
        'messages': '1c7b8b859c22794d',
        'small messages': '818c0d7555742e44',
        'hexadecimal': '19da5bb51a3408b5',
        'random': '6368ce65edafcef0',
        'prose': 'da5a49b56179652b',
        'other script': 'a77845dc37cc3cf1',
        'numbers': '63238c170bfc2d3d',
    }


def test_how_names_are_grouped() -> None:
    assert digest(group(names(1000))) == '56436a4e6ec566a0'
