"""The encrypted form of bodies and texts: pinned, exact in both directions, and no byte of it can be changed."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness_temporal.encryption import Key, KeyRing, keys
from harness_temporal.errors import MissingKeyError, StoreCorruptionError, StoreError, StoreSchemaError
from harness_temporal.media import BaseMediaStore, DiskMediaStore
from harness_temporal.stores import external, sealing
from harness_temporal.stores.externalizer import Externalizer

KEY, OTHER = Key('k1', bytes(range(32))), Key('k2', bytes(range(32)))
SEALER = sealing.Sealer(KEY)
BODY = b'{"content":"%b","file":{"data":"AAAAAAAAAAAAAAAA","media_type":"image/png"}}' % (b'x' * 16)


def an_externalizer(*given_keys: Key, media: BaseMediaStore | None = None, threshold: int = 12) -> Externalizer:
    return Externalizer(media, threshold, KeyRing.of(*given_keys) if given_keys else None)


def test_purposes_are_for_ever() -> None:
    assert (sealing.BODY_PURPOSE, sealing.BODY_NONCE_PURPOSE) == (
        b'harness-temporal body v1',
        b'harness-temporal body nonce v1',
    )
    assert (sealing.PART_PURPOSE, sealing.PART_NONCE_PURPOSE) == (
        b'harness-temporal part v1',
        b'harness-temporal part nonce v1',
    )


def test_the_forms_are_pinned() -> None:
    assert (
        SEALER.seal(b'a body').hex()
        == '0331206b310ad4d0e04b0fb44aed6e1cf2dfe77c9c5aa1a9b27888017d861a4570d74c913d34edc7'
    )
    assert SEALER.seal_part(b'a part').hex() == 'e55f6d4e281d9ec3e4130587de3d83f4343ef5e369d081211335e914bccc391fc26c'
    assert SEALER.seal_text('a text') == '\x03AzEgazEKxY2QwUrtaJZ8U/X4z4l66U5/dkl9y5RWZI9xJsxmisAyOw=='
    stored, parts = external.cut(BODY, 12, SEALER)
    head, _, rest = stored.partition(b'\n')
    assert head == (
        b'\x02{"version":2,"parts":[{"at":12,"uri":"media+sha256://bcbe261c47415f02865455a32a706d44ed79'
        b'3366026d7dbbcf2fb4444b001804","form":"text"},{"at":30,"uri":"media+sha256://06a76c6d2bfbeb'
        b'd1a96f668f9406165478a5e4e1da0e35a0d345d65f2c9ab5af","form":"base64url"}]}'
    )
    assert rest.hex() == (
        '0331206b310a6aa73cbc24d1b7eeffc5444740acdebd347e4d598c6050b157285e64579b6793a6741931360e8a'
        'e557204fd227e7cf08002429561f5e2dad14a7f0838ae13f48c08a9824076ee7135bde20a81699eb5c675fee0f'
        '5a98'
    )
    assert [(part.data.hex(), part.media_type) for part in parts] == [
        ('63e414e6d2faa183fb6cd208911944a29a22159e6ce1526599be97b495cd79aba9887b03293c4428b0f01085', None),
        ('36b9d7d970c8fa88093a11d155db10a68f7e4ad37ba6bbd35339cbafb0f6db501d3b882d2783e80a', None),
    ]


async def test_what_the_pinned_forms_hold_is_read() -> None:
    externalizer = an_externalizer(OTHER, KEY)
    assert await externalizer.restore(SEALER.seal(b'a body'), 'x') == b'a body'
    assert await externalizer.restore_text(SEALER.seal_text('a text'), 'x') == 'a text'


def test_only_the_same_content_under_the_same_key_looks_the_same() -> None:
    assert SEALER.seal(b'x') == sealing.Sealer(KEY).seal(b'x')
    sealed = [SEALER.seal(b'x'), SEALER.seal(b'y'), SEALER.seal(b'x', b'context'), sealing.Sealer(OTHER).seal(b'x')]
    nonces = {each.partition(b'\n')[2][:12] for each in sealed}
    assert len(nonces) == 4
    assert SEALER.seal_part(b'x') not in sealed[0]


def test_a_context_cannot_be_moved_into_the_content() -> None:
    """With one nonce for both, the two would give away the key of their tags."""
    nonces = {
        SEALER.seal(body, context).partition(b'\n')[2][:12]
        for body, context in [(b'ab', b''), (b'b', b'a'), (b'', b'ab')]
    }
    assert len(nonces) == 3


@given(st.binary(max_size=300), st.integers(1, 40))
async def test_any_body_comes_back(body: bytes, threshold: int) -> None:
    for given_body in (body, b'\x02' + body, b'\x03' + body, b'"' + body + b'"'):
        stored, parts = external.cut(given_body, threshold, SEALER)
        if not parts:
            assert await an_externalizer(KEY).restore(stored, 'x') == given_body
            continue
        read = external.parse(stored)
        blobs = {reference.uri: None for reference in read.references}
        opened = {uri: SEALER.open_part(part.data) for uri, part in zip(blobs, parts, strict=True)}
        assert read.opened(SEALER).join(opened) == given_body


@given(st.text(st.characters(), max_size=20), st.sampled_from(['', '\x03', '\x03\x03']))
async def test_any_text_comes_back(text: str, before: str) -> None:
    for externalizer in (an_externalizer(), an_externalizer(KEY)):
        stored = await externalizer.store_text(before + text)
        assert await externalizer.restore_text(stored, 'x') == before + text


async def test_no_byte_can_be_changed(tmp_path: Path) -> None:
    externalizer = an_externalizer(KEY, media=DiskMediaStore(tmp_path))
    for body in (b'short', BODY):
        stored = await externalizer.store(body)
        assert await externalizer.restore(stored, 'x') == body
        for place in range(len(stored)):
            changed = stored[:place] + bytes([stored[place] ^ 1]) + stored[place + 1 :]
            with pytest.raises(StoreError):
                await externalizer.restore(changed, 'x')


@pytest.mark.parametrize(
    ('stored', 'error', 'says'),
    [
        (b'\x03', StoreCorruptionError, 'which key'),
        (b'\x031 k1', StoreCorruptionError, 'which key'),
        (b'\x031 k/1\nxxxx', StoreCorruptionError, 'which key'),
        (b'\x031 k1\n', StoreCorruptionError, 'cannot be decrypted'),
        (b'\x031 k1\n' + b'x' * 40, StoreCorruptionError, 'cannot be decrypted'),
        (b'\x032 something else', StoreSchemaError, 'format 2, which a newer release made'),
        (b'\x031 k2\n' + b'x' * 40, MissingKeyError, "'k2', which is not among the keys"),
    ],
)
async def test_what_is_damaged_or_newer_is_refused(stored: bytes, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        await an_externalizer(KEY).restore(stored, "run 'run-1'")


@pytest.mark.parametrize('stored', ['\x03not base64', '\x03', '\x03MSBrMQo='])
async def test_a_damaged_text_is_refused(stored: str) -> None:
    with pytest.raises(StoreCorruptionError, match="run 'run-1' has"):
        await an_externalizer(KEY).restore_text(stored, "run 'run-1'")


async def test_a_body_that_is_known_to_be_stored_is_encrypted_anew_with_a_new_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = [KEY]
    externalizer = Externalizer(DiskMediaStore(tmp_path), 12, KeyRing(lambda: held))
    before = await externalizer.store(BODY)
    held.insert(0, OTHER)
    monkeypatch.setattr(keys, 'REFRESH_SECONDS', 0)
    after = await externalizer.store(BODY)
    assert (b'\x031 k1\n' in before, b'\x031 k2\n' in after) == (True, True)
    assert [await externalizer.restore(stored, 'x') for stored in (before, after)] == [BODY, BODY]


async def test_large_content_is_encrypted_beside_the_event_loop(tmp_path: Path) -> None:
    externalizer = an_externalizer(KEY, media=DiskMediaStore(tmp_path))
    for body in (b'{"content":"%b"}' % (b'x' * (2 << 20)), b'[%b]' % (b'1,' * (1 << 20))):
        assert await externalizer.restore(await externalizer.store(body), 'x') == body
