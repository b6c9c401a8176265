"""Each numbered case has a test that names it."""

from __future__ import annotations

import re
from pathlib import Path

CASES = range(1, 111)
FIELD_CASES = (5, 9, 10, 11, 12, 13, 15, 16, 18, 19, 20, 21, 26, 48, 54)


def test_every_case_is_named_by_a_test() -> None:
    text = ''.join(path.read_text() for path in Path(__file__).parent.glob('*.py') if path.name != Path(__file__).name)
    named = {int(number) for number in re.findall(r'(?<!field_)case[-_](\d+)', text)}
    # 44 to 46 are one test whose ids are counted up.
    assert set(CASES) - named <= {44, 45, 46}
    assert set(FIELD_CASES) - {int(number) for number in re.findall(r'field_case_(\d+)', text)} == set()
