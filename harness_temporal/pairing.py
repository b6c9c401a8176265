"""Which tool calls of a history are answered. Pure."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pydantic_ai.messages import ModelMessage, ModelRequestPart, ModelResponse, ToolCallPart, ToolReturnPart

from harness_temporal.recent import Recent
from harness_temporal.records import HistoryLink


@dataclass(frozen=True)
class Pairing:
    """How the tool calls and results of a history match."""

    unanswered: tuple[str, ...] = ()
    """Ids of calls that have no result before the next response, in order."""
    orphans: tuple[str, ...] = ()
    """Ids of results that no call of the response before them asked for."""
    repeated: tuple[str, ...] = ()
    """Ids that were called or answered more than once within one response."""

    @property
    def settled(self) -> bool:
        """Whether every call has exactly one result and every result its call."""
        return not (self.unanswered or self.orphans or self.repeated)


class Matching:
    """How the calls and results of a history match that may go on."""

    def __init__(self) -> None:
        self._unanswered: list[str] = []
        self._orphans: list[str] = []
        self._repeated: list[str] = []
        self._open_calls: dict[str, None] = {}
        """Calls of the last response that have no result yet."""
        self._asked: frozenset[str] = frozenset()
        """All calls of the last response."""

    @property
    def pairing(self) -> Pairing:
        """How they match if this is all."""
        return Pairing((*self._unanswered, *self._open_calls), tuple(self._orphans), tuple(self._repeated))

    def copy(self) -> Matching:
        """Return one that goes on by itself."""
        other = Matching()
        other._unanswered, other._orphans, other._repeated = [*self._unanswered], [*self._orphans], [*self._repeated]
        other._open_calls, other._asked = self._open_calls.copy(), self._asked
        return other

    def follow(self, messages: Iterable[ModelMessage]) -> Matching:
        """Take what follows. Returns itself."""
        for message in messages:
            self._add(message)
        return self

    def _add(self, message: ModelMessage) -> None:
        if isinstance(message, ModelResponse):
            self._unanswered.extend(self._open_calls)
            calls = [part.tool_call_id for part in message.parts if isinstance(part, ToolCallPart)]
            self._asked, self._open_calls = frozenset(calls), dict.fromkeys(calls)
            self._repeated.extend(call for call in self._open_calls if calls.count(call) > 1)
            return
        for part in message.parts:
            answered = _answered_call(part)
            if answered is None:
                continue
            if answered in self._open_calls:
                del self._open_calls[answered]
            elif answered in self._asked:
                self._repeated.append(answered)
            else:
                self._orphans.append(answered)


def pair_calls(messages: Iterable[ModelMessage]) -> Pairing:
    """Match each response's tool calls with the results that follow it, before the next response.

    A call is answered by a tool return of any outcome or by a retry request for it. Calls that a provider runs itself
    are never open. An id may come again in a later response; within one response it may not.
    """
    return Matching().follow(messages).pairing


class KnownMatchings:
    """How the calls of histories match, by the histories' identities: these say what all messages are.

    Any thread may use them.

    Args:
        limit: How many histories to know.
    """

    def __init__(self, limit: int) -> None:
        self._matchings = Recent[bytes, Matching](limit)
        self._lock = threading.Lock()

    def pairing(self, links: Sequence[HistoryLink], messages: Sequence[ModelMessage]) -> Pairing:
        """Return how the calls of these messages match, given the links of each, from the first message on."""
        known, matching = self._known(links)
        if known < len(links):
            matching = matching.copy().follow(messages[known:])
            with self._lock:
                self._matchings.put(links[-1].digest, matching)
        return matching.pairing

    def _known(self, links: Sequence[HistoryLink]) -> tuple[int, Matching]:
        """Return how many messages the longest known beginning has, and how its calls match."""
        with self._lock:
            for known in range(len(links), 0, -1):
                if (matching := self._matchings.get(links[known - 1].digest)) is not None:
                    return known, matching
        return 0, Matching()


def _answered_call(part: ModelRequestPart) -> str | None:
    """Return the id of the call that a part answers. Older retries are prompts, not returns."""
    if isinstance(part, ToolReturnPart):
        return part.tool_call_id
    if part.part_kind == 'retry-prompt' and part.tool_name is not None:
        return part.tool_call_id
    return None
