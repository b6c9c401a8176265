"""What the pages of the Temporal UI say, and pictures of them."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.ui.chromium import Page

WIDTH: Final = 1400
HEIGHT: Final = 1600
_MENU: Final = 256
"""Pixels of the menu at the left, which is on no picture."""
_SECONDS: Final = 30.0
_COLUMNS: Final = ('Status', 'Workflow ID', 'HarnessAgent', 'HarnessStatus', 'HarnessWaitingForApproval')
_SETTINGS: Final = {'namespace-workflow-table-columns': {'default': [{'label': label} for label in _COLUMNS]}}
"""What a person would choose once, where the UI keeps it."""
_TEXTS: Final = """
    [document.body, ...[...document.querySelectorAll('iframe')].map(frame => frame.contentDocument?.body)]
        .map(body => body?.innerText ?? '').join('\\n')
"""
"""Markdown is in frames of the page."""


@dataclass(frozen=True)
class TemporalUI:
    """The UI as one person sees it."""

    url: str
    page: Page
    pictures: Path

    @classmethod
    async def open(cls, url: str, page: Page, pictures: Path) -> TemporalUI:
        """Prepare a page for the UI."""
        settings = {key: json.dumps(value) for key, value in _SETTINGS.items()}
        await page.before_scripts(f'Object.entries({json.dumps(settings)}).forEach(([k, v]) => localStorage[k] = v)')
        return cls(f'{url}/namespaces/default/workflows', page, pictures)

    async def shows(self, path: str, texts: Sequence[str]) -> str:
        """Go somewhere, wait until all the texts are there, and return all of the page's text.

        Raises:
            AssertionError: They did not come in time; it says which, and what was there instead.
        """
        await self.page.go(self.url + path)
        deadline = asyncio.get_running_loop().time() + _SECONDS
        while True:
            shown = str(await self.page.evaluate(_TEXTS))
            missing = [text for text in texts if text not in shown]
            if not missing:
                return shown
            assert asyncio.get_running_loop().time() < deadline, f'{missing} missing in: {shown}'
            await asyncio.sleep(0.1)

    async def take(self, name: str, *, of: str, down_to: str, below: int = 16) -> Path:
        """Take a picture of the page from an element's top to another's bottom, and return its file.

        Args:
            name: The file's name.
            of: An expression of JavaScript for the element at the top.
            down_to: That for the one at the bottom.
            below: Pixels below that one.
        """
        # Charts and frames find their size after their texts are there.
        top, bottom = await self._edges(of, down_to)
        while (edges := await self._edges(of, down_to)) != (top, bottom):
            top, bottom = edges
        assert top < bottom, f'{of} is not above {down_to}'
        clip = {'x': _MENU, 'y': top, 'width': WIDTH - _MENU, 'height': bottom + below - top}
        file = self.pictures / f'{name}.png'
        file.write_bytes(await self.page.picture(clip))
        return file

    async def _edges(self, of: str, down_to: str) -> tuple[int, int]:
        await self.page.evaluate('new Promise(done => setTimeout(() => requestAnimationFrame(done), 200))')
        edges: Any = await self.page.evaluate(
            f'[{of}.getBoundingClientRect().top - 16, {down_to}.getBoundingClientRect().bottom]'
        )
        top, bottom = edges
        return max(int(top), 0), int(bottom)


def picture_folder(otherwise: Path) -> Path:
    """Return where pictures go: to `HARNESS_UI_PICTURES`, or where they are looked at only when a test has failed."""
    return Path(os.environ.get('HARNESS_UI_PICTURES', otherwise))
