"""What a person sees of a thread in the Temporal UI, and finds it by. Workflow-side."""

from __future__ import annotations

from collections.abc import Sequence

from harness_temporal.temporal.threads.turns import Turns
from harness_temporal.temporal.threads.values import PendingCall, ThreadInput, ThreadState
from harness_temporal.temporal.visibility import attributes
from harness_temporal.temporal.visibility.steps import StepTable, call_cell, step_table
from harness_temporal.temporal.visibility.summaries import WAITS_FOR, call_text

_SUSPENDED = 'suspended'
"""The status of what waits for answers: that of a run which asked for them, too."""


class Signs:
    """The details and, where the namespace has them, the search attributes of one thread."""

    def __init__(self, input: ThreadInput) -> None:
        self._input = input
        self._table: StepTable | None = None

    def put_up(self, state: ThreadState, turns: Turns, pending: Sequence[PendingCall]) -> None:
        """Show where the thread is."""
        # The workflow's own task knows the table, handlers of updates do not.
        self._table = self._table or step_table.get()
        if self._table is not None:
            self._table.head(details(self._input.thread_id, state, turns, pending))
        if self._input.search_attributes:
            attributes.tell_change(
                _SUSPENDED if state == 'waiting_for_approval' else state,
                waiting_for_approval=any(call.kind == 'approval' for call in _open(pending)),
            )


def details(thread_id: str, state: ThreadState, turns: Turns, pending: Sequence[PendingCall]) -> str:
    """Return what the thread does, the calls that it waits for, and how they are answered, as Markdown. Pure."""
    return '\n\n'.join(filter(None, (_state_line(state, turns), _calls(pending), _advice(thread_id, pending))))


def _state_line(state: ThreadState, turns: Turns) -> str:
    facts = [f'**{state.replace("_", " ")}**']
    turn = turns.latest
    if turn is not None:
        ended = f' {turn.status}' if turn.has_ended else ''
        facts.append(f'turn {turn.number}{ended}')
        if turn.error is not None:
            facts.append(call_cell(f'{turn.error_type}: {turn.error}'))
    if turns.queued:
        facts.append(f'{len(turns.queued)} in the queue')
    return ' · '.join(facts)


def _calls(pending: Sequence[PendingCall]) -> str:
    if not pending:
        return ''
    lines = ['| call | | waits for | until |', '| --- | --- | --- | --- |']
    for call in pending:
        what = call_cell(call_text(call.tool, call.arguments))
        waits_for = 'nothing, it is answered' if call.answered else WAITS_FOR[call.kind]
        until = call.deadline.isoformat(' ', 'minutes') if call.deadline is not None else ''
        lines.append(f'| {call_cell(call.tool_call_id)} | {what} | {waits_for} | {until} |')
    return '\n'.join(lines)


_COMMANDS = {
    'approval': 'Decide with `harness-temporal approve {thread} CALL`, or `deny`.',
    'external': 'Give a result with `harness-temporal threads answer {thread} CALL JSON`.',
}


def _advice(thread_id: str, pending: Sequence[PendingCall]) -> str:
    kinds = dict.fromkeys(call.kind for call in _open(pending))
    return ' '.join(_COMMANDS[kind].format(thread=thread_id) for kind in kinds)


def _open(pending: Sequence[PendingCall]) -> list[PendingCall]:
    return [call for call in pending if not call.answered]
