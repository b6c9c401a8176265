"""Naming conversations as an activity, and how a workflow asks for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from pydantic_ai.messages import ModelMessage
from temporalio import activity, workflow
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception

from harness_temporal.conversations.text import conversation_tail
from harness_temporal.errors import ConfigurationError
from harness_temporal.step_persistence.naming import TAIL, SessionName, SessionNamer, naming_prompt
from harness_temporal.temporal.durability import DEFAULT_HEARTBEAT_TIMEOUT, DEFAULT_RETRY_POLICY
from harness_temporal.temporal.heartbeats import heartbeats

NAME_CONVERSATION_ACTIVITY = 'harness_temporal__name_conversation'
"""Activity name. It is in histories for ever."""

_LONGEST = timedelta(minutes=2)
_ATTEMPTS = 2
"""A name is not worth more: the next turn asks again."""


@dataclass(frozen=True, kw_only=True)
class NamingInput:
    """What to name: a conversation of the worker's store, or the end of one that the workflow has itself."""

    conversation_id: str | None = None
    tail: str = ''
    title: str = ''
    subtitle: str = ''


@dataclass(frozen=True, kw_only=True)
class NamingOutput:
    """The name that was given or made, if any."""

    name: SessionName | None = None
    tokens: int = 0
    """What making it used; 0 for a conversation of the store, which keeps the number."""


def name_conversation_activity(namer: SessionNamer | None) -> Callable[..., Any]:
    """Return the activity, with the namer of a worker."""

    @activity.defn(name=NAME_CONVERSATION_ACTIVITY)
    async def name_conversation(wanted: NamingInput) -> NamingOutput:
        if namer is None:
            raise ConfigurationError(
                'This worker names no conversations. Pass `HarnessPlugin(naming=SessionNamer(...))`.'
            )
        async with heartbeats():
            return await _made(namer, wanted)

    return name_conversation


async def _made(namer: SessionNamer, wanted: NamingInput) -> NamingOutput:
    if wanted.conversation_id is not None:
        return NamingOutput(name=await namer.name(conversation_id=wanted.conversation_id))
    prompt = naming_prompt(title=wanted.title, subtitle=wanted.subtitle, tail=wanted.tail)
    async with asyncio.timeout(namer.timeout):
        result = await namer.generate(prompt)
    return NamingOutput() if result is None else NamingOutput(name=result.name, tokens=result.tokens)


async def name_conversation(conversation_id: str) -> SessionName | None:
    """Name a conversation of the worker's conversation store, if it needs it. Call it from workflow code.

    A failure is logged at level DEBUG, and leaves the metadata as it was. Cancelling the workflow cancels it.

    Returns:
        The name that was given; `None` if none was.

    Raises:
        ConfigurationError: The worker has no namer, or its store or model is not set up right.
    """
    return (await _name(NamingInput(conversation_id=conversation_id))).name


async def name_messages(messages: Sequence[ModelMessage], *, title: str = '', subtitle: str = '') -> NamingOutput:
    """Make a name for messages that the workflow has. Call it from workflow code. See `name_conversation`.

    Only the end of what was said crosses, 2,400 characters, and nothing is stored. `title` and `subtitle` are the name
    so far.
    """
    tail = conversation_tail(messages, TAIL)
    return await _name(NamingInput(tail=tail, title=title, subtitle=subtitle)) if tail else NamingOutput()


async def _name(wanted: NamingInput) -> NamingOutput:
    try:
        return await workflow.execute_activity(
            NAME_CONVERSATION_ACTIVITY,
            wanted,
            result_type=NamingOutput,
            start_to_close_timeout=_LONGEST,
            heartbeat_timeout=DEFAULT_HEARTBEAT_TIMEOUT,
            retry_policy=replace(DEFAULT_RETRY_POLICY, maximum_attempts=_ATTEMPTS),
            summary='name conversation',
        )
    except ActivityError as error:
        if is_cancelled_exception(error):
            raise
        if isinstance(error.cause, ApplicationError) and error.cause.type == ConfigurationError.__name__:
            raise ConfigurationError(error.cause.message) from error
        workflow.logger.debug('a conversation could not be named', exc_info=True)
        return NamingOutput()
