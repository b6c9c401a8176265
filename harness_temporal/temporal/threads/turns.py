"""The turns of a thread: accepted in order, each once. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

from pydantic_core import to_json

from harness_temporal.errors import ThreadError
from harness_temporal.temporal.threads.values import SendInput, ThreadOptions, Turn

TURNS_KEPT = 200
"""How many turns that have ended are remembered by their keys."""
OUTPUT_BYTES_KEPT = 64 * 1024
"""How much of their outputs is kept, as JSON. The newest is kept whatever its size."""
MAX_KEY_CHARACTERS = 200


class Turns:
    """What was accepted and has not ended, and the end of what has."""

    def __init__(self, options: ThreadOptions, turns: Iterable[Turn], *, last_number: int) -> None:
        self._options = options
        self.all = list(turns)
        self.last_number = last_number

    @property
    def current(self) -> Turn | None:
        """The turn that is on."""
        return next((turn for turn in self.all if turn.status in ('running', 'waiting_for_approval')), None)

    @property
    def latest(self) -> Turn | None:
        """The turn that is on, or the one that ended last."""
        ended = [turn for turn in self.all if (turn.has_ended and turn.run_id is not None) or turn.status == 'failed']
        return self.current or (ended[-1] if ended else None)

    @property
    def queued(self) -> list[Turn]:
        """The turns that have not begun, in the order in which they will."""
        return [turn for turn in self.all if turn.status == 'queued']

    def check(self, given: SendInput, *, closing: bool) -> None:
        """Refuse a message that cannot become a turn, or is not the one that its key stands for.

        Raises:
            ThreadError: `key_invalid`, `key_reused`, `key_unknown`, `thread_closed`, `prompt_empty`,
                `prompt_too_large` or `queue_full`.
        """
        if not 1 <= len(given.key) <= MAX_KEY_CHARACTERS:
            raise ThreadError('key_invalid', f'A key has 1 to {MAX_KEY_CHARACTERS} characters, not {len(given.key)}.')
        known = self.of_key(given.key)
        if known is not None:
            if given.prompt is not None and known.digest != _digest(given.prompt):
                raise ThreadError('key_reused', f'Key {given.key!r} stands for another message, turn {known.number}.')
            return
        if given.prompt is None:
            raise ThreadError('key_unknown', f'No turn of the last {TURNS_KEPT} has the key {given.key!r}.')
        self._check_prompt(given.prompt, closing=closing)

    def _check_prompt(self, prompt: str, *, closing: bool) -> None:
        if closing:
            raise ThreadError('thread_closed', 'The thread is closed, and takes no more messages.')
        if not prompt.strip():
            raise ThreadError('prompt_empty', 'The message is empty.')
        size = len(prompt.encode())
        if size > self._options.max_prompt_bytes:
            raise ThreadError(
                'prompt_too_large', f'The message has {size} bytes; at most {self._options.max_prompt_bytes} are taken.'
            )
        if len(self.queued) >= self._options.max_queued:
            raise ThreadError('queue_full', f'{len(self.queued)} messages wait already. Send it later.')

    def accept(self, given: SendInput) -> Turn:
        """Return the message's turn: the one that its key stands for, or a new one at the end."""
        known = self.of_key(given.key)
        if known is not None:
            return known
        assert given.prompt is not None
        self.last_number += 1
        turn = Turn(number=self.last_number, key=given.key, digest=_digest(given.prompt), prompt=given.prompt)
        self.all.append(turn)
        return turn

    def of_key(self, key: str) -> Turn | None:
        """Return the turn that a key stands for."""
        return next((turn for turn in self.all if turn.key == key), None)

    def to_cancel(self, number: int | None) -> Turn:
        """Return the turn to cancel.

        Raises:
            ThreadError: `nothing_to_cancel`.
        """
        turn = self.current if number is None else next((turn for turn in self.all if turn.number == number), None)
        if turn is None or turn.has_ended:
            which = 'No turn is on' if number is None else f'Turn {number} is not there, or has ended'
            raise ThreadError('nothing_to_cancel', f'{which}.')
        return turn

    def forget(self) -> None:
        """Drop what is too old to be asked for."""
        ended = [turn for turn in self.all if turn.has_ended]
        old = {turn.number for turn in ended[:-TURNS_KEPT]}
        self.all = [turn for turn in self.all if turn.number not in old]
        kept = 0
        for turn in reversed(ended):
            kept += _size(turn.output)
            if kept > OUTPUT_BYTES_KEPT and turn is not ended[-1]:
                turn.output = None


def _digest(prompt: str) -> str:
    return hashlib.sha256(prompt.encode()).hexdigest()


def _size(output: Any) -> int:
    return len(to_json(output, serialize_unknown=True)) if output is not None else 0
