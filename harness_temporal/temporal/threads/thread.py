"""One thread, turn by turn, for as long as it lives. Workflow-side."""

from __future__ import annotations

from dataclasses import replace
from typing import Never

from pydantic_ai.durable_exec.temporal import AgentEventStream
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults
from pydantic_ai.usage import RunUsage
from temporalio import workflow

from harness_temporal.state.running import Run
from harness_temporal.temporal.agent_run import AgentRunInput, AgentRunOutput, run_agent
from harness_temporal.temporal.failures import is_missing_snapshot, told
from harness_temporal.temporal.threads.approvals import PendingAnswers
from harness_temporal.temporal.threads.basis import Basis
from harness_temporal.temporal.threads.reminding import Reminders, wait_for_answers
from harness_temporal.temporal.threads.resting import Leg
from harness_temporal.temporal.threads.signs import Signs
from harness_temporal.temporal.threads.steps import summarize
from harness_temporal.temporal.threads.turns import Turns
from harness_temporal.temporal.threads.values import (
    ApprovalReminder,
    CarriedThread,
    PendingCall,
    SendInput,
    StepSummary,
    ThreadInput,
    ThreadOutput,
    ThreadState,
    Turn,
    TurnEnd,
)

_UPDATE_IDS_KEPT = 200
_WITHDRAWN = 'The turn was cancelled before all of its calls were answered, so this call was not made.'


class Thread:
    """What a thread is at a moment, and the loop that drives it. `ThreadDesk` is how others get at it."""

    def __init__(self, input: ThreadInput, events: AgentEventStream) -> None:
        begun = input.beginning()
        self.input = input
        self.turns = Turns(input.options, begun.turns, last_number=begun.last_number)
        self.basis = Basis(begun.state, [*begun.recoveries], begun.answers)
        self.usage = begun.usage
        self.name = begun.name
        self.closing = begun.closing
        self.closed = False
        self.handing_over = False
        """The thread is about to go on in another workflow run: nobody is to wait here any more."""
        self.pending = PendingAnswers.read(begun.asked) if begun.asked is not None else None
        self.answered_calls = begun.answered_calls
        self.update_ids = begun.update_ids
        """Of updates that were carried out, so that one sent again is not."""
        self._going_on = begun.going_on
        self._steps = begun.steps
        self._events = events
        self._events_since = begun.stream_offset
        self._run: Run | None = None
        self._leg = Leg(input.options.history_budget)
        self._reminders = Reminders(input.options.approvals.reminder_activity)
        self._signs = Signs(input)

    # --- what there is to see ---

    @property
    def state(self) -> ThreadState:
        """What the thread does."""
        turn = self.turns.current
        if turn is None:
            return 'closed' if self.closed else 'idle'
        return 'waiting_for_approval' if turn.status == 'waiting_for_approval' else 'running'

    def waits_for(self) -> list[PendingCall]:
        """Return the calls that the turn waits for."""
        return self.pending.pending(self.input.options.approvals) if self.pending is not None else []

    def steps(self) -> list[StepSummary]:
        """Return the steps of the newest run of the newest turn."""
        return summarize(self._run.messages, self._run.run_id) if self._run is not None else self._steps

    def usage_of(self, turn: Turn) -> RunUsage:
        """Return what a turn has used up to this moment."""
        return turn.usage + self._run.usage if self._run is not None and turn is self.turns.current else turn.usage

    def _tell(self) -> None:
        self._signs.put_up(self.state, self.turns, self.waits_for())

    # --- what others ask for, checked ---

    def accept(self, given: SendInput) -> Turn:
        """Take a message."""
        turn = self.turns.accept(given)
        self._tell()
        return turn

    def cancel(self, turn: Turn) -> None:
        """Have a turn end as cancelled."""
        turn.cancelled = True
        if turn.status == 'queued':
            self._end(turn, 'cancelled')
        elif self._run is not None:
            self._run.cancel()
        self._tell()

    def resolve(self, answers: DeferredToolResults) -> None:
        """Take answers. When they are all there, the turn goes on."""
        assert self.pending is not None
        self.pending.add(answers)
        self._go_on_when_answered()
        self._tell()

    def note_update(self, update_id: str) -> None:
        """Remember that an update was carried out."""
        self.update_ids = [*self.update_ids, update_id][-_UPDATE_IDS_KEPT:]

    # --- the loop ---

    async def run(self) -> ThreadOutput:
        """Run turn after turn, until the thread is closed and has answered what it accepted."""
        while (input := await self._next()) is not None:
            self._tell()
            await self._drive(input)
        self.closed = True
        self._tell()
        await self._events.close()
        await workflow.wait_condition(workflow.all_handlers_finished)
        return ThreadOutput(
            thread_id=self.input.thread_id,
            name=self.name,
            state=self.basis.state,
            usage=self.usage,
            turns=self.turns.last_number,
        )

    async def _next(self) -> AgentRunInput | None:
        """Wait for something to do, and return it; `None` when the thread is closed."""
        if self._going_on is not None:
            going_on, self._going_on = self._going_on, None
            return going_on
        while True:
            turn = self.turns.current
            if turn is None:
                await self._wait_for_messages()
            elif not turn.cancelled:
                await self._wait_for_answers(turn)
            if self._leg.is_over():
                await self._hand_over(None)
            if turn is not None and self._is_over(turn):
                continue
            if turn is not None:
                return self._answered()
            if self.turns.queued:
                return self._begin(self.turns.queued[0])
            if self.closing:
                return None

    async def _wait_for_messages(self) -> None:
        def is_over() -> bool:
            return bool(self.turns.queued) or self.closing or self._leg.is_over()

        if not is_over():
            self._tell()
        await workflow.wait_condition(is_over)

    def _begin(self, turn: Turn) -> AgentRunInput:
        turn.status = 'running'
        self._steps = []
        # The events of this turn and the one before stay.
        stream = self._events.stream
        stream.truncate(self._events_since)
        state = stream.get_state()
        self._events_since = state.base_offset + len(state.log)
        return self.basis.run_input(self.input, turn.prompt)

    def _answered(self) -> AgentRunInput:
        assert self.pending is not None
        self.basis.answers = self.pending.document()
        self.answered_calls = sorted(self.pending.answered)
        self.pending = None
        return self.basis.run_input(self.input, None)

    async def _drive(self, input: AgentRunInput) -> None:
        turn = self.turns.current
        assert turn is not None
        while True:
            try:
                output = await run_agent(input, continue_as_new=self._hand_over, on_begin=self._begun)
            except Exception as error:
                if workflow.cancellation_reason() is not None:
                    raise
                if self._run is None and self.basis.recoveries and is_missing_snapshot(error):
                    self.basis.forget_newest()
                    input = self.basis.run_input(self.input, input.prompt)
                    continue
                self._failed(turn, error)
            else:
                self._ended(turn, output)
            break
        self._leg.note_run()

    def _begun(self, run_id: str, run: Run) -> None:
        turn = self.turns.current
        assert turn is not None
        turn.run_id, self._run = run_id, run
        self.basis.used_answers()
        if turn.cancelled:
            run.cancel()

    def _failed(self, turn: Turn, error: Exception) -> None:
        turn.error_type, turn.error = told(error)
        if self._run is not None and turn.run_id is not None:
            ended = self._run.outcome
            self.basis.recover_from(turn.run_id, ended.state if ended is not None else None, cancelled=False)
        self._settle(turn)
        self._end(turn, 'failed')

    def _ended(self, turn: Turn, output: AgentRunOutput) -> None:
        assert self._run is not None
        if output.status == 'cancelled':
            ended = self._run.delivered()
            self.basis.recover_from(output.run_id, ended.state, cancelled=True)
            self._settle(turn)
            return self._end(turn, 'cancelled')
        self.basis.advance(output)
        self._settle(turn)
        if output.status == 'completed':
            turn.output = output.output
            return self._end(turn, 'answered')
        assert isinstance(output.output, DeferredToolRequests)
        self.pending = PendingAnswers(output.output, DeferredToolResults(), since=workflow.now())
        turn.status = 'waiting_for_approval'

    def _settle(self, turn: Turn) -> None:
        """Keep what is to be known of the run that is over."""
        if self._run is not None:
            self._steps = self.steps()
            used, self._run = self._run.usage, None
            turn.usage, self.usage = turn.usage + used, self.usage + used

    def _end(self, turn: Turn, status: TurnEnd) -> None:
        turn.status, turn.prompt = status, None
        self.turns.forget()

    # --- waiting for answers ---

    async def _wait_for_answers(self, turn: Turn) -> None:
        pending = self.pending
        assert pending is not None

        def is_over() -> bool:
            return pending.is_complete or turn.cancelled or self._leg.is_over()

        if not is_over():
            self._tell()
        await wait_for_answers(pending, self.input.options.approvals, is_over=is_over, remind=self._remind)
        self._go_on_when_answered()

    def _remind(self, number: int) -> None:
        self._reminders.send(
            ApprovalReminder(thread_id=self.input.thread_id, name=self.name, number=number, pending=self.waits_for())
        )

    def _go_on_when_answered(self) -> None:
        turn = self.turns.current
        if turn is not None and self.pending is not None and self.pending.is_complete:
            turn.status = 'running'

    def _is_over(self, turn: Turn) -> bool:
        """End a turn that was cancelled while it waited. The next one tells the model what became of the calls."""
        if not turn.cancelled or self.pending is None:
            return False
        self.pending.withdraw(_WITHDRAWN)
        self.basis.answers = self.pending.document()
        self.pending = None
        self._end(turn, 'cancelled')
        return True

    # --- going on in another workflow run ---

    async def _hand_over(self, going_on: AgentRunInput | None) -> Never:
        self._tell()
        self.handing_over = True
        self._events.stream.detach_pollers()
        await workflow.wait_condition(workflow.all_handlers_finished)
        workflow.continue_as_new(replace(self.input, state=None, going_on=self._carried(going_on)))

    def _carried(self, going_on: AgentRunInput | None) -> CarriedThread:
        return CarriedThread(
            turns=self.turns.all,
            last_number=self.turns.last_number,
            state=self.basis.state,
            recoveries=self.basis.recoveries,
            usage=self.usage,
            name=self.name,
            asked=self.pending.dump() if self.pending is not None else None,
            answers=self.basis.answers,
            answered_calls=self.answered_calls,
            going_on=going_on,
            steps=self.steps(),
            update_ids=self.update_ids,
            closing=self.closing,
            stream=self._events.stream.get_state(),
            stream_offset=self._events_since,
        )
