"""How others get at a thread: its updates and queries. Workflow-side."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager

from pydantic_ai.tools import DeferredToolResults
from temporalio import workflow

from harness_temporal.errors import ThreadError
from harness_temporal.temporal.failures import in_full
from harness_temporal.temporal.threads.approvals import checked_answers
from harness_temporal.temporal.threads.thread import Thread
from harness_temporal.temporal.threads.values import (
    CancelInput,
    PendingCall,
    RenameInput,
    Reply,
    ResolveInput,
    SendInput,
    ThreadStatus,
    Turn,
    Wait,
)

MAX_NAME_CHARACTERS = 200


class ThreadDesk:
    """Checks what is asked of a thread before it is accepted, and does each thing once."""

    def __init__(self, thread: Thread) -> None:
        self._thread = thread

    # --- updates: `check_…` refuses, before anything is in the history ---

    def check_send(self, given: SendInput) -> None:
        """Refuse what cannot become a turn. See `Turns.check`."""
        with _refusing():
            self._thread.turns.check(given, closing=self._thread.closing)

    async def send(self, given: SendInput) -> Reply:
        """Accept a message, once for each key."""
        return await self._reply(self._thread.accept(given), given.wait)

    def check_resolve(self, given: ResolveInput) -> None:
        """Refuse answers that fit no call. See `checked_answers`."""
        with _refusing():
            if not self._is_done():
                self._checked(given)

    async def resolve(self, given: ResolveInput) -> Reply:
        """Take answers to some or all of the calls that the turn waits for."""
        thread = self._thread
        self._once(lambda: thread.resolve(self._checked(given)))
        turn = thread.turns.latest
        assert turn is not None
        return await self._reply(turn, given.wait)

    def _checked(self, given: ResolveInput) -> DeferredToolResults:
        thread = self._thread
        turn = thread.turns.current
        if given.run_id is not None and (turn is None or turn.run_id != given.run_id):
            raise ThreadError('not_waiting', f'Run {given.run_id!r} waits for no answers any more.')
        return checked_answers(thread.pending, given.answers, thread.answered_calls)

    def check_cancel(self, given: CancelInput) -> None:
        """Refuse if there is no such turn, or none is on."""
        with _refusing():
            if not self._is_done():
                self._thread.turns.to_cancel(given.turn)

    async def cancel(self, given: CancelInput) -> Reply:
        """Cancel a turn, and return when it has ended. The thread goes on with the next one."""
        thread = self._thread
        turn = thread.turns.latest if self._is_done() else thread.turns.to_cancel(given.turn)
        assert turn is not None
        self._once(lambda: thread.cancel(turn))
        await workflow.wait_condition(lambda: turn.has_ended or thread.handing_over)
        return self._tell(turn)

    def check_rename(self, given: RenameInput) -> None:
        """Refuse what is no name."""
        with _refusing():
            if not given.name.strip() or len(given.name) > MAX_NAME_CHARACTERS:
                raise ThreadError('name_invalid', f'A name has 1 to {MAX_NAME_CHARACTERS} characters.')

    async def rename(self, given: RenameInput) -> None:
        """Give the thread another name."""

        def rename() -> None:
            self._thread.name = given.name

        self._once(rename)

    async def close(self) -> None:
        """Take no more messages. The thread ends when it has answered those that it took."""
        self._thread.closing = True

    # --- queries ---

    def status(self) -> ThreadStatus:
        """Return where the thread is."""
        thread = self._thread
        turn = thread.turns.latest
        return ThreadStatus(
            state=thread.state,
            name=thread.name,
            turn=self._tell(turn) if turn is not None else None,
            queued=len(thread.turns.queued),
            usage=thread.usage,
        )

    def approvals(self) -> list[PendingCall]:
        """Return the calls that the turn waits for."""
        return self._thread.waits_for()

    # --- replies ---

    async def _reply(self, turn: Turn, wait: Wait) -> Reply:
        thread = self._thread
        if wait == 'answered':
            await workflow.wait_condition(lambda: _has_reply(turn) or thread.handing_over)
        return self._tell(turn)

    def _tell(self, turn: Turn) -> Reply:
        return Reply(
            turn=turn.number,
            key=turn.key,
            status=turn.status,
            output=turn.output,
            error_type=turn.error_type,
            error=turn.error,
            run_id=turn.run_id,
            usage=self._thread.usage_of(turn),
            pending=self.approvals() if turn.status == 'waiting_for_approval' else [],
            handed_over=self._thread.handing_over and not _has_reply(turn),
        )

    def _is_done(self) -> bool:
        """Whether this update was carried out before, in an earlier workflow run: there Temporal knows it no more."""
        return _update_id() in self._thread.update_ids

    def _once(self, do: Callable[[], None]) -> None:
        if not self._is_done():
            do()
            self._thread.note_update(_update_id())


def _has_reply(turn: Turn) -> bool:
    return turn.has_ended or turn.status == 'waiting_for_approval'


def _update_id() -> str:
    info = workflow.current_update_info()
    assert info is not None
    return info.id


@contextmanager
def _refusing() -> Generator[None]:
    """Tell the code of a refusal."""
    try:
        yield
    except ThreadError as error:
        raise in_full(error) from error
