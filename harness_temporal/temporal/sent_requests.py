"""What of a model request crosses into its activity: what is new since a request that was answered. Workflow-side.

A run sends its whole history with every request. Here the messages that an earlier request of the workflow had as well
stay behind, and the activity is told which request that was and how many messages to take from it. The worker puts
them together again (`received_requests`).

A message stays behind if it is the very object that was sent, with nothing in it changed since: a capability may change
a message in place. What the run before has sent is told by the messages' identities instead, once for each run: they
went on as JSON. A base is always an *answered* request, so that it is in the workflow's history. One that is cancelled
at once never gets there.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, replace
from itertools import takewhile
from operator import eq
from typing import Any, Final

from pydantic_ai.messages import ModelMessage
from temporalio import workflow
from temporalio.worker import StartActivityInput

from harness_temporal.context_variables import having
from harness_temporal.errors import NotStorableError
from harness_temporal.history import encode_history
from harness_temporal.unchanged import Watch, common_length

REQUEST_KEY: Final = 'harness_request'
"""Key of a `Crossing` in a serialized run context. It is in histories for ever."""

_BASES: Final = 8
"""Requests that a workflow remembers: that of each agent run which was answered last, as a rule."""

_here: ContextVar[list[_Base] | None] = ContextVar('harness_temporal.bases', default=None)
"""The requests that are remembered within `SentRequests.of_one_run`."""


@dataclass(frozen=True, kw_only=True)
class Crossing:
    """How the messages of a model request crossed. The field names are in histories for ever."""

    number: int
    """Of the request, in its workflow run."""
    base: int | None
    """Number of the request that it begins like."""
    kept: int
    """Messages of that request which are not sent again."""


class SentRequests:
    """The model requests of one workflow run that were answered last."""

    def __init__(self) -> None:
        self._number = 0
        self._bases: list[_Base] = []
        """The one used latest is the last."""
        self._ended = _EndedRun()

    @contextmanager
    def of_one_run(self) -> Generator[None]:
        """Remember the messages that are sent meanwhile only as long as this is on; after that, what they were.

        For an agent run whose messages go on as JSON: no later request has these objects, and they take more memory
        than all else that a workflow keeps of a run.
        """
        bases = list[_Base]()
        try:
            with having(_here, bases):
                yield
            if bases:
                self._ended = bases[-1].ended()
        finally:
            bases.clear()

    def send(
        self, input: StartActivityInput, start: Callable[[StartActivityInput], workflow.ActivityHandle[Any]]
    ) -> workflow.ActivityHandle[Any]:
        """Start the activity of a model request with the messages that are new."""
        params, *others = input.args
        messages: Sequence[ModelMessage] = params.messages
        here = _here.get()
        bases = here if here is not None else self._bases
        base, kept = _best(bases, messages)
        self._number += 1
        crossing = self._crossing(base, kept, messages)
        context = {**params.serialized_run_context, REQUEST_KEY: asdict(crossing)}
        input.args = [replace(params, messages=messages[crossing.kept :], serialized_run_context=context), *others]
        handle = start(input)
        if 2 * kept < len(base.messages):
            # Another run that begins alike, rather than the same one. It must not cost that one its base.
            base = _Base()
        base.extend(self._number, messages, kept)

        def note(done: workflow.ActivityHandle[Any]) -> None:
            if not done.cancelled() and done.exception() is None and base.answer(crossing.number):
                _use(bases, base)

        handle.add_done_callback(note)
        return handle

    def _crossing(self, base: _Base, kept: int, messages: Sequence[ModelMessage]) -> Crossing:
        if kept:
            return Crossing(number=self._number, base=base.number, kept=kept)
        kept = self._ended.common(messages)
        return Crossing(number=self._number, base=self._ended.number if kept else None, kept=kept)


def _best(bases: Sequence[_Base], messages: Sequence[ModelMessage]) -> tuple[_Base, int]:
    """Return what begins most like these messages, and how many messages are the same."""
    best, longest = _Base(), 0
    for base in reversed(bases):
        kept = base.common(messages)
        if kept > longest:
            best, longest = base, kept
    return best, longest


def _use(bases: list[_Base], base: _Base) -> None:
    if base in bases:
        bases.remove(base)
    bases.append(base)
    del bases[:-_BASES]


class _Base:
    """A request that was answered, and perhaps one on top of it that is not answered yet."""

    def __init__(self) -> None:
        self.number = 0
        self.messages: list[ModelMessage] = []
        """The messages that the answered request begins with, as far as they are known not to have changed."""
        self._watch = Watch()
        self._next: tuple[int, list[ModelMessage]] | None = None
        """The number of the other request, and its new messages."""

    def common(self, messages: Sequence[ModelMessage]) -> int:
        """Return how many messages are the same from the first on."""
        same = common_length(messages, self.messages)
        return min(same, self._watch.unchanged()) if same else 0

    def extend(self, number: int, messages: Sequence[ModelMessage], kept: int) -> None:
        """Note a request that begins with the first `kept` messages here, if any. There is one at a time."""
        self._watch.forget(kept)
        del self.messages[kept:]
        # What cannot be watched, and what follows it, crosses with every request.
        self._next = number, list(takewhile(self._watch.add, messages[len(self.messages) :]))

    def answer(self, number: int) -> bool:
        """Let the other request be the base. False if it is not the one that was noted."""
        if self._next is None or self._next[0] != number:
            return False
        self.number = number
        self.messages += self._next[1]
        self._next = None
        return True

    def ended(self) -> _EndedRun:
        """Return what is remembered of the answered request when its messages are gone."""
        return _EndedRun(self.number, _identities(self.messages[: self._watch.unchanged()]))


@dataclass(frozen=True)
class _EndedRun:
    """The request of an ended run that was answered last."""

    number: int = 0
    identities: Sequence[bytes] = ()
    """Of its messages, each with all before it."""

    def common(self, messages: Sequence[ModelMessage]) -> int:
        """Return how many messages are the same from the first on."""
        length = min(len(messages), len(self.identities))
        return sum(1 for _ in takewhile(bool, map(eq, _identities(messages[:length]), self.identities)))


def _identities(messages: Sequence[ModelMessage]) -> list[bytes]:
    try:
        return [link.digest for link in encode_history(messages).links]
    except NotStorableError:
        return []


sent_requests: ContextVar[SentRequests | None] = ContextVar('harness_temporal.sent_requests', default=None)
"""The requests of the workflow run. The interceptor sets it."""
