"""`MediaExternalizer`: models fetch large files by URL instead of getting their bytes with every request."""

from __future__ import annotations

import asyncio
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from pydantic_ai.capabilities import AbstractCapability, durable_operation
from pydantic_ai.messages import (
    AudioUrl,
    BinaryContent,
    DocumentUrl,
    FileUrl,
    ImageUrl,
    ModelMessage,
    ModelRequest,
    ToolReturnPart,
    UserPromptPart,
    VideoUrl,
)
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.tools import AgentDepsT, RunContext

from harness_temporal.errors import ConfigurationError
from harness_temporal.media.context import MediaContext
from harness_temporal.media.protocol import MediaStore


@dataclass(init=False)
class MediaExternalizer(AbstractCapability[AgentDepsT]):
    """Puts large binary parts of prompts and tool returns into a media store, and their URLs in their place.

    It does so before each model request, for the run's history as well, so that every later request, payload and
    snapshot has the URL only (step-persistence seed, "Exposing externalized bytes as URLs"). A part for which the store
    has no public URL stays as it is, and so does one of a kind that has no URL part. Each part that is replaced is one
    durable operation: on Temporal, an activity.

    Put it before `StepPersistence`, which then has nothing left to move.

    A URL in a history is used for as long as that history is: give URLs that do not expire sooner.

    Args:
        store: Where the parts go. It needs a `public_url`.
        threshold_bytes: How large a part has to be.
        id: Stable, so that the durable operation keeps its name. Set it when an agent has more than one.
    """

    store: MediaStore
    threshold_bytes: int

    def __init__(
        self, store: MediaStore, *, threshold_bytes: int = 64 * 1024, id: str | None = 'media_externalizer'
    ) -> None:
        if threshold_bytes < 1:
            raise ConfigurationError(f'`threshold_bytes` must be at least 1, got {threshold_bytes}.')
        self.store, self.threshold_bytes, self.id = store, threshold_bytes, id

    async def before_model_request(
        self, ctx: RunContext[AgentDepsT], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Replace the large parts of the history and of what is sent."""
        large = {
            (content.data, content.media_type): content
            for message in request_context.messages
            for content in _files(message)
            if len(content.data) >= self.threshold_bytes and _url_kind(content)
        }
        if not large:
            return request_context
        found = await asyncio.gather(*(self._externalize(ctx, _payload(content)) for content in large.values()))
        urls = {content.data: url for content, url in zip(large.values(), found, strict=True) if url is not None}
        changed = [(message, _with_urls(message, urls)) for message in request_context.messages]
        for old, new in changed:
            if new is old:
                continue
            if old is ctx.messages[-1]:
                # The run still adds to the request that it is about to send, by this very object.
                cast(ModelRequest, old).parts = cast(ModelRequest, new).parts
                continue
            for messages in (ctx.messages, request_context.messages):
                messages[:] = [new if message is old else message for message in messages]
        return request_context

    @durable_operation(name='externalize')
    async def _externalize(self, ctx: RunContext[AgentDepsT], payload: dict[str, str]) -> str | None:
        context = MediaContext(media_type=payload['media_type'])
        uri = await self.store.put(b64decode(payload['data']), context=context)
        return await self.store.public_url(uri, context=context)


def _payload(content: BinaryContent) -> dict[str, str]:
    return {'data': b64encode(content.data).decode(), 'media_type': content.media_type}


def _files(message: ModelMessage) -> Iterable[BinaryContent]:
    """Return the files of a request's prompts and tool returns."""
    if isinstance(message, ModelRequest):
        for part in message.parts:
            if isinstance(part, UserPromptPart | ToolReturnPart):
                yield from _files_in(part.content)


def _files_in(content: Any) -> Iterable[BinaryContent]:
    match content:
        case BinaryContent():
            yield content
        case list() | tuple():
            for item in cast(Iterable[Any], content):
                yield from _files_in(item)
        case Mapping():
            yield from _files_in(list(cast(Mapping[Any, Any], content).values()))
        case _:
            pass


def _with_urls(message: ModelMessage, urls: Mapping[bytes, str]) -> ModelMessage:
    """Return the message with URLs in the place of files, or the message itself if there is nothing to replace."""
    if not any(content.data in urls for content in _files(message)):
        return message
    request = cast(ModelRequest, message)
    parts = [
        replace(part, content=_replaced(part.content, urls))
        if isinstance(part, UserPromptPart | ToolReturnPart)
        else part
        for part in request.parts
    ]
    return replace(request, parts=parts)


def _replaced(content: Any, urls: Mapping[bytes, str]) -> Any:
    match content:
        case BinaryContent() if content.data in urls:
            return _url(content, urls[content.data])
        case list() | tuple():
            items = [_replaced(item, urls) for item in cast(Iterable[Any], content)]
            return items if isinstance(content, list) else tuple(items)
        case Mapping():
            return {key: _replaced(value, urls) for key, value in cast(Mapping[Any, Any], content).items()}
        case _:
            return content


def _url_kind(content: BinaryContent) -> type[ImageUrl | AudioUrl | VideoUrl | DocumentUrl] | None:
    if content.is_image:
        return ImageUrl
    if content.is_audio:
        return AudioUrl
    if content.is_video:
        return VideoUrl
    return DocumentUrl if content.is_document else None


def _url(content: BinaryContent, url: str) -> FileUrl:
    kind = _url_kind(content)
    assert kind is not None  # only such content has a URL
    return kind(
        url, media_type=content.media_type, identifier=content.identifier, vendor_metadata=content.vendor_metadata
    )
