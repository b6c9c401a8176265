"""The capability's durable operations, and what its hooks say to them.

Each operation is one named unit of a durable engine (a Temporal activity with dedicated boundaries) and runs in place
outside one. Their names and payloads are in Temporal histories for ever.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic_ai.capabilities import AbstractCapability, durable_operation
from pydantic_ai.messages import ModelMessage
from pydantic_ai.tools import AgentDepsT, RunContext

from harness_temporal.errors import HarnessError, PluginMissingError
from harness_temporal.history import encode_history
from harness_temporal.records import EventKind, SnapshotState, ToolEffectRecord
from harness_temporal.step_persistence import effects, operations
from harness_temporal.step_persistence.context import boundaries_ride
from harness_temporal.step_persistence.events import SnapshotSaved
from harness_temporal.step_persistence.facts import EventFacts, RunFacts, SnapshotFacts, ToolCallFacts
from harness_temporal.step_persistence.outcomes import Ended
from harness_temporal.step_persistence.run_state import RunState
from harness_temporal.stores.memory import InMemoryStepStore
from harness_temporal.stores.protocol import StepStore


@dataclass
class DurableBoundaries(AbstractCapability[AgentDepsT]):
    """The store, the state of the run that an instance was made for, and the operations between them."""

    store: StepStore = field(default_factory=InMemoryStepStore)
    """Where runs are kept."""
    id: str | None = 'step_persistence'
    """Stable, so that durable operations keep their names. Set it when an agent has more than one."""
    _state: RunState | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def _running(self) -> RunState:
        if self._state is None:
            raise HarnessError(
                "`StepPersistence` works within a run: its hooks were called on the agent's own instance."
            )
        return self._state

    # --- what the hooks say ---

    async def _start(self, ctx: RunContext[AgentDepsT]) -> None:
        state = self._running
        host = state.carrier.host_metadata() if state.carrier is not None else {}
        payload = {'run': state.run.dump(), 'rides': state.carrier is not None, 'host': host}
        await self._start_run(ctx, payload)

    async def _save(self, ctx: RunContext[AgentDepsT], messages: Sequence[ModelMessage]) -> None:
        """Save a history, unless it is the one that was saved last."""
        state = self._running
        history = encode_history(messages)
        if state.is_saved(history):
            return
        state.last_step = max(state.last_step, ctx.run_step)
        snapshot = state.to_save(history, messages, whole=False)
        payload = {'run': state.run.dump(), 'snapshot': snapshot.dump()}
        if not await self._save_snapshot(ctx, payload):
            snapshot = state.to_save(history, messages, whole=True)
            await self._save_snapshot(ctx, payload | {'snapshot': snapshot.dump()})
        state.saved(history)
        await self._tell_saved(ctx, snapshot.state)

    async def _end(
        self,
        ctx: RunContext[AgentDepsT],
        kind: EventKind,
        messages: Sequence[ModelMessage] | None,
        *,
        error: str | None = None,
    ) -> None:
        """Write the run's end and, with `messages`, its last history if that was not saved yet."""
        state = self._running
        payload: dict[str, Any] = {
            'run': state.run.dump(),
            'ended': EventFacts(kind=kind, step_index=state.last_step, error=error).dump(),
            'last': None,
            'pending': state.pending(),
        }
        history = encode_history(messages) if messages is not None else None
        if messages is None or history is None or state.is_saved(history):
            await self._end_run(ctx, payload)
            return
        last = state.to_save(history, messages, whole=False)
        if not await self._end_run(ctx, payload | {'last': last.dump()}):
            last = state.to_save(history, messages, whole=True)
            await self._end_run(ctx, payload | {'last': last.dump()})
        state.saved(history)
        await self._tell_saved(ctx, last.state)

    async def _tell_saved(self, ctx: RunContext[AgentDepsT], state: SnapshotState) -> None:
        running = self._running
        await ctx.emit(
            SnapshotSaved(
                persistence_run_id=running.run.run_id,
                conversation_id=running.run.conversation_id,
                step_index=running.last_step,
                state=state,
            )
        )

    async def _request_event(self, ctx: RunContext[AgentDepsT], kind: EventKind, *, error: str | None = None) -> None:
        state = self._running
        event = EventFacts(kind=kind, step_index=ctx.run_step, subject=str(state.requests), error=error)
        await self._append_event(ctx, {'run': state.run.dump(), 'event': event.dump()})

    async def _announce(self, ctx: RunContext[AgentDepsT], call: ToolCallFacts) -> None:
        await self._start_tool_effect(ctx, {'run': self._running.run.dump(), 'call': call.dump()})

    async def _claim(
        self, ctx: RunContext[AgentDepsT], call: ToolCallFacts, *, holder: str, recovery: effects.ToolRecovery
    ) -> dict[str, Any]:
        payload = {'run': self._running.run.dump(), 'call': call.dump(), 'holder': holder, 'recovery': recovery}
        return await self._start_tool_effect(ctx, payload)

    async def _finish(
        self, ctx: RunContext[AgentDepsT], call: ToolCallFacts, record: ToolEffectRecord, ended: Ended
    ) -> None:
        payload = {
            'run': self._running.run.dump(),
            'call': call.dump(),
            'holder': record.holder,
            'attempts': record.attempts,
            'started_at': record.started_at.isoformat(),
            'outcome': ended.outcome,
            'value': ended.value.decode() if ended.value is not None else None,
            'error': ended.error,
        }
        await self._finish_tool_effect(ctx, payload)

    async def _tool_ended(self, ctx: RunContext[AgentDepsT], call: ToolCallFacts, ended: Ended) -> None:
        """Write the end of a call whose ledger entry its own attempt keeps."""
        payload = {
            'run': self._running.run.dump(),
            'call': call.dump(),
            'outcome': ended.outcome,
            'error': ended.error,
        }
        await self._finish_tool_effect(ctx, payload)

    # --- the operations ---

    @durable_operation(name='registration_identity')
    async def _registration_identity(self, ctx: RunContext[AgentDepsT]) -> str:
        return uuid.uuid4().hex

    @durable_operation(name='start_run')
    async def _start_run(self, ctx: RunContext[AgentDepsT], payload: dict[str, Any]) -> None:
        if payload['rides'] and not boundaries_ride.get():
            raise PluginMissingError(
                'The worker runs an agent with `HarnessDurability`, but not `HarnessPlugin`, so tool calls and model '
                'requests would run without their ledger. Pass `plugins=[HarnessPlugin(agents=[...])]` to '
                "`Client.connect` (a worker takes its client's plugins)."
            )
        await operations.start_run(self.store, RunFacts.load(payload['run']), host=payload['host'])

    @durable_operation(name='append_event')
    async def _append_event(self, ctx: RunContext[AgentDepsT], payload: dict[str, Any]) -> None:
        await operations.append_event(self.store, RunFacts.load(payload['run']), EventFacts.load(payload['event']))

    @durable_operation(name='save_snapshot')
    async def _save_snapshot(self, ctx: RunContext[AgentDepsT], payload: dict[str, Any]) -> bool:
        run, snapshot = RunFacts.load(payload['run']), SnapshotFacts.load(payload['snapshot'])
        return await operations.save_snapshot(self.store, run, snapshot)

    @durable_operation(name='start_tool_effect')
    async def _start_tool_effect(self, ctx: RunContext[AgentDepsT], payload: dict[str, Any]) -> dict[str, Any]:
        run, call = RunFacts.load(payload['run']), ToolCallFacts.load(payload['call'])
        if call.announced:
            await effects.announce(self.store, run, call)
            return {}
        claim = await effects.claim(self.store, run, call, recovery=payload['recovery'], holder=payload['holder'])
        if isinstance(claim, effects.Unknown):
            await effects.report_unknown(self.store, run, call, claim.record)
        return effects.dump_claim(claim)

    @durable_operation(name='finish_tool_effect')
    async def _finish_tool_effect(self, ctx: RunContext[AgentDepsT], payload: dict[str, Any]) -> None:
        run, call = RunFacts.load(payload['run']), ToolCallFacts.load(payload['call'])
        if call.announced:
            await effects.report_end(self.store, run, call, outcome=payload['outcome'], error=payload['error'])
            return
        record = call.effect(
            run, holder=payload['holder'], attempts=payload['attempts'], started_at=payload['started_at']
        )
        value = payload['value']
        ended = Ended(payload['outcome'], value.encode() if value is not None else None, payload['error'])
        await effects.finish(self.store, run, call, record, ended)

    @durable_operation(name='end_run')
    async def _end_run(self, ctx: RunContext[AgentDepsT], payload: dict[str, Any]) -> bool:
        last = payload['last']
        return await operations.end_run(
            self.store,
            RunFacts.load(payload['run']),
            ended=EventFacts.load(payload['ended']),
            last=SnapshotFacts.load(last) if last is not None else None,
            pending=payload['pending'],
        )
