from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from harness_temporal.testing.samples import KEYS, TEXTS
from harness_temporal.text import as_storable, escape, escape_key, unescape

any_text = st.text(alphabet=st.characters(exclude_categories=()))
tricky_text = st.text(alphabet='\x00\ud800\udfff\uf8ff0afd8ek')


@given(any_text | tricky_text)
@example('\uf8ff0000')
@example('\uf8ff\x00')
@example('\uf8ff\uf8ff')
def test_escaped_text_reads_back(text: str) -> None:
    assert unescape(escape(text)) == text


@given(any_text | tricky_text)
def test_escaped_text_can_be_stored_anywhere(text: str) -> None:
    escaped = escape(text)
    assert '\x00' not in escaped
    escaped.encode()


@given(tricky_text, tricky_text)
def test_different_texts_are_escaped_differently(one: str, other: str) -> None:
    assert (escape(one) == escape(other)) == (one == other)


@pytest.mark.parametrize('name', ['beyond the BMP', 'NFC', 'NFD', 'line ends', 'control characters', 'quotes', 'long'])
def test_harmless_text_stays_as_it_is(name: str) -> None:
    assert escape(TEXTS[name]) == TEXTS[name]
    assert unescape(TEXTS[name]) == TEXTS[name]


def test_what_nul_and_a_lone_surrogate_become() -> None:
    assert escape('a\x00b\udce9\uf8ff') == 'a\uf8ff0000b\uf8ffdce9\uf8fff8ff'


@given(any_text | tricky_text | st.sampled_from(['kind', 'Kind', 'kind ', 'ind', '\uf8ff006bind']))
def test_escaped_key_reads_back_and_is_never_kind(key: str) -> None:
    assert unescape(escape_key(key)) == key
    assert escape_key(key) != 'kind'


def test_different_keys_are_escaped_differently() -> None:
    keys = {*KEYS.values(), 'kind', '\uf8ff006bind', '\uf8fff8ff006bind', 'ind'}
    assert len({escape_key(key) for key in keys}) == len(keys)


@given(any_text)
def test_text_for_showing_can_be_encoded(text: str) -> None:
    as_storable(text).encode()


def test_text_for_showing_says_which_surrogate_there_was() -> None:
    assert as_storable('caf\udce9 é 😀') == 'caf\\udce9 é 😀'
