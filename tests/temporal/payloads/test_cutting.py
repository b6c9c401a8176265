"""Cutting and trees: any bytes come back, equal parts are equal pieces. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from functools import cache
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness_temporal.temporal.payloads.cutting import LARGEST, LONG, SMALLEST, cut, most_pieces
from harness_temporal.temporal.payloads.tree import NAME_SIZE, group, names_in

SIZE = 2_000_000


def messages(count: int, *, seed: int = 0, size: int = 2000) -> bytes:
    """JSON of a run's messages, of about the given size each."""
    random = Random(seed)
    return json.dumps(
        [
            {
                'parts': [{'content': random.randbytes(random.randrange(size)).hex(), 'part_kind': 'tool-return'}],
                'kind': 'request' if number % 2 else 'response',
            }
            for number in range(count)
        ],
        separators=(',', ':'),
    ).encode()


def prose(words: int) -> bytes:
    random = Random(1)
    known = ['every', 'queen', 'of', 'the', 'river', 'takes', 'a', 'brown', 'fox', 'over', 'lazy', 'water', 'her']
    return ' '.join(random.choices(known, k=words)).encode()


def other_script(letters: int) -> bytes:
    random = Random(2)
    return ''.join(chr(random.randrange(0x4E00, 0x9FFF)) for _ in range(letters)).encode()


KINDS: dict[str, Callable[[], bytes]] = {
    'messages': lambda: messages(1000),
    'small messages': lambda: messages(5000, size=100),
    'hexadecimal': lambda: Random(3).randbytes(SIZE // 2).hex().encode(),
    'random': lambda: Random(4).randbytes(SIZE),
    'prose': lambda: prose(400_000),
    'other script': lambda: other_script(SIZE // 3),
    'numbers': lambda: json.dumps(list(range(300_000)), separators=(',', ':')).encode(),
}


@cache
def data_of(kind: str) -> bytes:
    return KINDS[kind]()


fragments = st.sampled_from([b'},{', b'{"a":', b'eA', b'"', b'x' * 5000, messages(3), bytes(70_000)])
payloads = st.lists(st.one_of(st.binary(max_size=100), fragments), max_size=30).map(b''.join)


@given(payloads)
def test_pieces_make_up_the_data_and_none_is_too_large(data: bytes) -> None:
    pieces = cut(data)
    assert b''.join(pieces) == data
    assert all(0 < len(piece) <= LARGEST for piece in pieces)
    assert len(pieces) <= most_pieces(len(data))


@given(payloads, payloads)
def test_a_shared_prefix_is_cut_alike(data: bytes, more: bytes) -> None:
    pieces, longer = cut(data), cut(data + more)
    shared = 0
    for piece, other in zip(pieces, longer, strict=False):
        if piece != other:
            break
        shared += len(piece)
    # What is still open at the end of the data: one piece, and one object that may turn out to be a long one.
    assert len(data) - shared <= LARGEST + 2 * LONG


@pytest.mark.parametrize('kind', KINDS)
def test_an_edit_in_the_middle_changes_few_pieces(kind: str) -> None:
    data = data_of(kind)
    pieces = cut(data)
    assert len(pieces) > 20
    for place in (len(data) // 3, len(data) // 2, len(data) - 1000):
        for edited in (
            data[:place] + b'an insertion' + data[place:],
            data[:place] + data[place + 7777 :],
            data[:place] + data_of('hexadecimal')[:50_000] + data[place:],
        ):
            again = cut(edited)
            assert b''.join(again) == edited
            inserted = max(0, len(edited) - len(data)) // (LONG // 2)
            assert len({*again} - {*pieces}) <= 20 + inserted


@pytest.mark.parametrize('kind', KINDS)
def test_a_part_elsewhere_shares_its_pieces(kind: str) -> None:
    """After some pieces, the cuts do not depend on what was before."""
    data = data_of(kind)
    shifted = cut(data_of('random')[:12_345] + data)
    assert len({*cut(data)} - {*shifted}) <= 20


@pytest.mark.parametrize('kind', KINDS)
def test_pieces_are_not_tiny(kind: str) -> None:
    data = data_of(kind)
    assert len(data) / len(cut(data)) > 1000


@pytest.mark.parametrize('long', [LONG, LONG + 1, LARGEST, LARGEST + 1, 2 * LARGEST + 1])
@pytest.mark.parametrize('short', [3, SMALLEST - 3])
def test_there_are_not_too_many_pieces_of_short_objects_beside_long_ones(long: int, short: int) -> None:
    one = b'{' + b'x' * (short - 3) + b'},'
    for filling in (b'x' * (long - 3), Random(5).randbytes(long).hex()[: long - 3].encode()):
        data = (one + b'{' + filling + b'},') * 40
        assert len(cut(data)) <= most_pieces(len(data)) // 3


def names(count: int, seed: int = 0) -> list[bytes]:
    return [hashlib.sha256(f'{seed} {number}'.encode()).digest() for number in range(count)]


def nodes_of(leaves: Sequence[bytes]) -> set[bytes]:
    """Every node of a tree."""
    nodes: set[bytes] = set()
    level = list(leaves)
    while len(level) > 1:
        groups = group(level)
        assert [name for node in groups for name in names_in(node)] == level
        nodes.update(groups)
        level = [hashlib.sha256(node).digest() for node in groups]
    return nodes


@given(st.lists(st.binary(min_size=NAME_SIZE, max_size=NAME_SIZE), min_size=2, max_size=400))
def test_groups_make_up_the_names_and_are_fewer(leaves: list[bytes]) -> None:
    groups = group(leaves)
    assert [name for node in groups for name in names_in(node)] == leaves
    assert len(groups) <= (len(leaves) + 1) // 2


def test_names_that_are_all_boundaries_still_make_a_tree() -> None:
    assert nodes_of([bytes(NAME_SIZE)] * 1000)


def test_longer_lists_and_edited_ones_share_their_nodes() -> None:
    leaves = names(5000)
    nodes = nodes_of(leaves)
    assert len(nodes) < 5000 / 10
    assert max(map(len, nodes)) <= 128 * NAME_SIZE
    assert len(nodes_of([*leaves, *names(1, seed=1)]) - nodes) <= 4
    assert len(nodes_of([*leaves[:2500], *names(1, seed=1), *leaves[2501:]]) - nodes) <= 8
    assert len(nodes_of([*leaves[:2500], *names(3, seed=1), *leaves[2500:]]) - nodes) <= 8


@pytest.mark.parametrize('node', [b'', b'x', bytes(NAME_SIZE + 1)])
def test_what_is_no_list_of_names_is_refused(node: bytes) -> None:
    with pytest.raises(ValueError, match='no list of names'):
        names_in(node)
