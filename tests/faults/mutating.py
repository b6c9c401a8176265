"""Damage for decoders: bytes that were changed somewhere, and JSON whose values are others."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([2**63, -(2**70)]),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(['', '..', '\x00', '\ud800', 'media+sha256://', '9' * 400]),
)
JSON: st.SearchStrategy[Any] = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


@st.composite
def damaged(draw: st.DrawFn, valid: bytes) -> bytes:
    """Cut something out of valid bytes and put something else there."""
    start = draw(st.integers(0, len(valid)))
    end = draw(st.integers(start, min(len(valid), start + 40)))
    return valid[:start] + draw(st.binary(max_size=12)) + valid[end:]


@st.composite
def changed(draw: st.DrawFn, valid: Any) -> Any:
    """Put another value into one place of a JSON value, or leave that place out."""
    if not isinstance(valid, dict | list) or not valid or draw(st.integers(0, 5)) == 0:
        return draw(JSON)
    key = draw(st.sampled_from([*valid] if isinstance(valid, dict) else range(len(valid))))
    copied = json.loads(json.dumps(valid))
    if draw(st.integers(0, 5)) == 0:
        del copied[key]
    else:
        copied[key] = draw(changed(valid[key]))
    return copied
