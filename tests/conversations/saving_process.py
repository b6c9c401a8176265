"""A process that saves conversations again and again, beside another one that does the same."""

from __future__ import annotations

import asyncio
import json
import os
import sys

from harness_temporal.conversations import ConversationConflict, ConversationSummary
from harness_temporal.testing.samples import asks
from tests.conversations.opening import open_place

SAVES = 8


async def save_often(location: list[str]) -> None:
    place = open_place(*location)
    store = place.conversations
    for number in range(SAVES):
        while True:
            summary, messages = ConversationSummary(id='shared'), []
            if await store.listing():
                saved = await store.get(conversation_id='shared')
                summary, messages = saved.summary, saved.messages
            try:
                await store.save(summary=summary, messages=[*messages, asks(f'{os.getpid()} {number}')])
                break
            except ConversationConflict:
                continue
    await store.aclose()
    await place.steps.aclose()


async def main(locations: list[list[str]]) -> None:
    # Both begin at once, with nothing there: the databases are theirs to make.
    print('ready', flush=True)
    sys.stdin.readline()
    await asyncio.gather(*(save_often(location) for location in locations))


if __name__ == '__main__':
    asyncio.run(main(json.loads(sys.argv[1])))
