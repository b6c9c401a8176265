"""What was said in a conversation, and how it is searched. Pure."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from typing import Final, Literal

from pydantic_ai.messages import ModelMessage, SpeechPart, TextContent, TextPart, UserPromptPart

from harness_temporal.text import UNSTORABLE

LONGEST_QUERY: Final = 1_000
"""Characters that a search may be for."""
SEARCHED: Final = 3_000_000
"""Characters of a conversation that a search looks through, from its end: more than any model reads at once, and less
than a document of MongoDB takes."""

_STAND_IN = '\ufffd'


def spoken(messages: Sequence[ModelMessage]) -> Iterator[tuple[Literal['user', 'assistant'], str]]:
    """Yield what the user and the assistant said, in order.

    That is no tool output, no reasoning, no instructions and no summary that stands for messages which are gone.
    """
    for message in messages:
        for part in message.parts:
            match part:
                case TextPart():
                    yield 'assistant', part.content
                case SpeechPart(transcript=str(transcript)):
                    yield part.speaker, transcript
                case UserPromptPart(content=str(content)):
                    yield 'user', content
                case UserPromptPart():
                    for item in part.content:
                        if isinstance(item, str | TextContent):
                            yield 'user', item if isinstance(item, str) else item.content
                case _:
                    pass


def message_text(messages: Sequence[ModelMessage]) -> str:
    """Return the part of a history that a search looks through."""
    return searchable('\n'.join(text for _, text in spoken(messages)))[-SEARCHED:]


def conversation_tail(messages: Sequence[ModelMessage], length: int) -> str:
    """Return the end of what was said, with who said it, in at most so many characters."""
    return '\n'.join(f'{who}: {text}' for who, text in spoken(messages) if text.strip())[-length:]


def searchable(text: str) -> str:
    """Return text in the form in which two texts that differ by case or composition alone are the same.

    No database takes every character; one stands in for the others, in what is searched and in what is searched for.
    """
    folded = unicodedata.normalize('NFC', unicodedata.normalize('NFD', text).casefold())
    return UNSTORABLE.sub(_STAND_IN, folded)
