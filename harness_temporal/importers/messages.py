"""Stored messages of another library, as messages of ours."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeAlias, cast

from pydantic import ValidationError
from pydantic_ai.messages import ModelMessagesTypeAdapter

from harness_temporal.errors import (
    ExternalContentError,
    NotStorableError,
    RunImportError,
    StoreError,
    StoreUnavailableError,
)
from harness_temporal.history import encode_message, link
from harness_temporal.importers.markers import restore
from harness_temporal.records import EncodedHistory, StoredMessage

Blob: TypeAlias = Callable[[str], Awaitable[bytes | None]]
"""Gives the content kept under a SHA-256 in hexadecimal, if there is any."""

_URI = re.compile('media\\+sha256://([0-9a-f]{64})')


class RunMessages:
    """Encodes the messages of one run, each once: every snapshot repeats those of the one before."""

    def __init__(self, run_id: str, blob: Blob) -> None:
        self._run_id = run_id
        self._blob = blob
        self._encoded: dict[bytes, StoredMessage] = {}

    async def encode(self, messages: Iterable[str]) -> EncodedHistory:
        """Encode a history given as the JSON of its messages.

        Raises:
            ExternalContentError: Content that a message refers to is missing, damaged or in an unknown form.
            RunImportError: A message is none that Pydantic AI reads, or one that no store takes.
        """
        return link(None, 0, [await self._message(text) for text in messages])

    async def _message(self, text: str) -> StoredMessage:
        key = hashlib.sha256(text.encode('utf-8', 'surrogatepass')).digest()
        if key not in self._encoded:
            self._encoded[key] = await self._read(text)
        return self._encoded[key]

    async def _read(self, text: str) -> StoredMessage:
        try:
            tree = await restore(json.loads(text), self._content, run_id=self._run_id)
            # Not from JSON text, which may not have the lone surrogates that a message may.
            return encode_message(ModelMessagesTypeAdapter.validate_python([tree])[0])
        except (NotStorableError, ValidationError, ValueError, RecursionError) as error:
            if isinstance(error, RunImportError):
                raise
            raise RunImportError(self._run_id, f'a message cannot be taken over: {reason_of(error)}') from error

    async def _content(self, uri: str) -> bytes:
        match = _URI.fullmatch(uri)
        if match is None:
            raise ExternalContentError(self._run_id, uri, 'is named in a way that this release does not know.')
        try:
            content = await self._blob(match[1])
        except StoreUnavailableError:
            raise
        except StoreError as error:
            raise ExternalContentError(self._run_id, uri, f'cannot be read: {error}') from error
        if content is None:
            raise ExternalContentError(
                self._run_id,
                uri,
                'is not in the store. If it was kept elsewhere, put it where the store keeps its own.',
            )
        if hashlib.sha256(content).hexdigest() != match[1]:
            raise ExternalContentError(self._run_id, uri, 'is damaged.')
        return content


def split_history(text: str, *, run_id: str) -> list[str]:
    """Return the JSON of each message of a history that is stored as one.

    Raises:
        RunImportError: It is not a JSON list.
    """
    return json_of_each(parsed(text, run_id=run_id), run_id=run_id)


def json_of_each(history: object, *, run_id: str) -> list[str]:
    """Return the JSON of each message of a history.

    Raises:
        RunImportError: It is not a list.
    """
    if not isinstance(history, list):
        raise RunImportError(run_id, 'the messages of a snapshot are not a list.')
    return [json.dumps(message) for message in cast(list[object], history)]


def referenced(digests: Iterable[str], stored: Mapping[str, str], *, run_id: str) -> list[str]:
    """Return the messages that a snapshot refers to.

    Raises:
        RunImportError: One is missing or damaged.
    """
    texts: list[str] = []
    for digest in digests:
        text = stored.get(digest)
        if text is None or hashlib.sha256(text.encode()).hexdigest() != digest:
            raise RunImportError(run_id, f'the message {digest} is {"missing" if text is None else "damaged"}.')
        texts.append(text)
    return texts


def references(text: str, *, run_id: str) -> list[str] | None:
    """Return the digests by which a snapshot refers to its messages, or `None` if it has the messages itself.

    Raises:
        RunImportError: It has neither.
    """
    if not text.startswith('{'):
        return None
    found = cast(dict[str, object], parsed(text, run_id=run_id)).get('message_refs')
    if not isinstance(found, list) or not all(isinstance(item, str) for item in cast(list[object], found)):
        raise RunImportError(run_id, 'a snapshot has neither messages nor references to them.')
    return cast(list[str], found)


def parsed(text: str | bytes, *, run_id: str, where: str = 'a record') -> object:
    """Read JSON.

    Raises:
        RunImportError: It is none.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RunImportError(run_id, f'{where} is not JSON ({error}).') from error


def reason_of(error: Exception) -> str:
    """Say in one line what is wrong."""
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        return f'{".".join(map(str, first["loc"]))}: {first["msg"]}'
    return str(error)
