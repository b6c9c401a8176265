"""The pages in docs/: the reference is up to date, and no link leads nowhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.api import render

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / 'README.md', ROOT / 'CONTRIBUTING.md', *sorted((ROOT / 'docs').glob('*.md'))]


def test_the_reference_is_what_the_docstrings_say() -> None:
    written = (ROOT / 'docs' / 'api.md').read_text()
    assert written == render(), 'uv run python -m tests.docs.api > docs/api.md'


@pytest.mark.parametrize('page', PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r'\]\(([^)#\s]+)(?:#[^)]*)?\)', page.read_text())
    missing = [link for link in links if '://' not in link and not (page.parent / link).exists()]
    assert missing == []
