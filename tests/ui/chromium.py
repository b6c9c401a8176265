"""A headless Chromium, driven by its DevTools protocol through pipes: no port, no library, no network."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import os
import shutil
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_NAMES = ('chromium', 'chromium-browser', 'google-chrome', 'chrome')
_FLAGS = (
    '--headless=new',
    '--remote-debugging-pipe',
    '--disable-gpu',
    '--disable-lcd-text',
    '--disable-dev-shm-usage',
    '--hide-scrollbars',
    '--no-first-run',
    '--disable-background-networking',
    '--disable-component-update',
    '--disable-sync',
    # What the UI would fetch from elsewhere fails here as it does without a network.
    '--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1',
)
_END = b'\0'
_LARGEST_MESSAGE = 64 << 20
"""Bytes. A picture comes in one message."""


class ChromiumError(Exception):
    """Chromium refuses a command, a page's script fails, or Chromium has ended."""


def find_chromium() -> str | None:
    """Return the executable: that of `HARNESS_TEST_CHROMIUM`, or one on the path."""
    names = (os.environ['HARNESS_TEST_CHROMIUM'],) if 'HARNESS_TEST_CHROMIUM' in os.environ else _NAMES
    return next((found for name in names if (found := shutil.which(name)) is not None), None)


@dataclass
class Chromium:
    """A running browser."""

    _from: asyncio.StreamReader
    _to: asyncio.StreamWriter
    _answers: dict[int, asyncio.Future[dict[str, Any]]] = field(
        default_factory=dict[int, asyncio.Future[dict[str, Any]]]
    )
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    async def send(self, method: str, *, session: str | None = None, **params: Any) -> dict[str, Any]:
        """Send a command, and return what comes of it.

        Raises:
            ChromiumError: It is refused, or Chromium has ended.
        """
        number = next(self._numbers)
        message: dict[str, Any] = {'id': number, 'method': method, 'params': params}
        if session is not None:
            message['sessionId'] = session
        self._answers[number] = answer = asyncio.get_running_loop().create_future()
        self._to.write(json.dumps(message).encode() + _END)
        async with asyncio.timeout(30):
            return await answer

    async def listen(self) -> None:
        """Hand answers to those who wait for them, until Chromium ends."""
        while True:
            try:
                message = json.loads((await self._from.readuntil(_END))[:-1])
            except asyncio.IncompleteReadError:
                for answer in self._answers.values():
                    # Nobody waits any more for one that took too long.
                    if not answer.done():
                        answer.set_exception(ChromiumError('Chromium has ended.'))
                return
            answer = self._answers.pop(message.get('id', 0), None)
            if answer is None or answer.done():
                continue
            if 'error' in message:
                answer.set_exception(ChromiumError(message['error']['message']))
            else:
                answer.set_result(message['result'])

    async def open(self, *, width: int, height: int) -> Page:
        """Open an empty page."""
        target = (await self.send('Target.createTarget', url='about:blank'))['targetId']
        session = (await self.send('Target.attachToTarget', targetId=target, flatten=True))['sessionId']
        page = Page(self, session)
        await page.send(
            'Emulation.setDeviceMetricsOverride', width=width, height=height, deviceScaleFactor=1, mobile=False
        )
        await page.send('Emulation.setTimezoneOverride', timezoneId='UTC')
        await page.send('Page.enable')
        return page


@dataclass(frozen=True)
class Page:
    """A page of the browser."""

    _chromium: Chromium
    _session: str

    async def send(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command about this page."""
        return await self._chromium.send(method, session=self._session, **params)

    async def before_scripts(self, script: str) -> None:
        """Run a script in every document before those of its own."""
        await self.send('Page.addScriptToEvaluateOnNewDocument', source=script)

    async def go(self, url: str) -> None:
        """Begin to load an address."""
        answer = await self.send('Page.navigate', url=url)
        if 'errorText' in answer:
            raise ChromiumError(f'{url}: {answer["errorText"]}')

    async def evaluate(self, expression: str) -> Any:
        """Return the value of an expression of JavaScript, as JSON.

        Raises:
            ChromiumError: It throws.
        """
        answer = await self.send('Runtime.evaluate', expression=expression, returnByValue=True, awaitPromise=True)
        if 'exceptionDetails' in answer:
            raise ChromiumError(str(answer['exceptionDetails']))
        return answer['result'].get('value')

    async def picture(self, clip: dict[str, int]) -> bytes:
        """Return a part of what is to be seen, as PNG."""
        clip = {**clip, 'scale': 1}
        return base64.b64decode((await self.send('Page.captureScreenshot', format='png', clip=clip))['data'])


@asynccontextmanager
async def chromium(executable: str, profile: Path) -> AsyncGenerator[Chromium]:
    """Run a browser with an empty profile."""
    flags = [*_FLAGS, f'--user-data-dir={profile}']
    if os.geteuid() == 0:
        # As root Chromium has no sandbox, and does not start unless it is told so.
        flags.append('--no-sandbox')
    process = await asyncio.create_subprocess_exec(
        '/bin/sh',
        '-c',
        # Chromium reads its commands from descriptor 3 and answers on 4.
        'exec "$@" 3<&0 4>&1 </dev/null >/dev/null',
        'sh',
        executable,
        *flags,
        'about:blank',
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        limit=_LARGEST_MESSAGE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    browser = Chromium(process.stdout, process.stdin)
    listening = asyncio.create_task(browser.listen())
    try:
        yield browser
    finally:
        # It ends when nobody can send commands any more.
        process.stdin.close()
        try:
            async with asyncio.timeout(10):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
        await listening
