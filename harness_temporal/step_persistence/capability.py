"""The `StepPersistence` capability: what is persisted and when. How is in `operations` and `effects`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import anyio
from pydantic_ai import CallToolsNode, ModelRequestNode
from pydantic_ai.capabilities import (
    AbstractCapability,
    AgentNode,
    NodeResult,
    ValidatedToolArgs,
    WrapModelRequestHandler,
    WrapRunHandler,
    WrapToolExecuteHandler,
)
from pydantic_ai.exceptions import CallDeferred, ToolFailed
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.run import AgentRunResult
from pydantic_ai.tools import AgentDepsT, RunContext, ToolDefinition

from harness_temporal.context_variables import having
from harness_temporal.errors import NotStorableError, UnknownToolOutcomeError
from harness_temporal.history import encode_history, has_response, is_provider_valid, snapshot_state
from harness_temporal.identity import resolve_run_id
from harness_temporal.records import ToolEffectRecord
from harness_temporal.step_persistence import effects
from harness_temporal.step_persistence.boundaries import DurableBoundaries
from harness_temporal.step_persistence.context import (
    current_run_id,
    current_tool_call,
    take_behind,
    tool_call_scope,
)
from harness_temporal.step_persistence.facts import ContinuedRun, EndedToolCall, RunFacts, SnapshotFacts, ToolCallFacts
from harness_temporal.step_persistence.host import BoundaryCarrier
from harness_temporal.step_persistence.outcomes import Ended, ended_with_error, ended_with_value, error_text, replay
from harness_temporal.step_persistence.run_state import RidingRequest, RunState
from harness_temporal.step_persistence.spec import store_from_spec
from harness_temporal.tools import is_recovery_retryable


@dataclass
class StepPersistence(DurableBoundaries[AgentDepsT]):
    """Append-only step log, continuable snapshots and tool-effect ledger of an agent's runs.

    At each boundary of a run (run, model request and tool call: start, completion, failure) it writes a `StepEvent`;
    for each tool call a ledger entry; whenever a tool cycle has settled a `ContinuableSnapshot`, and another of
    whatever the history is when the run ends or fails. Load a snapshot with `continue_run` or `fork_run` and pass it
    on as `Agent.run(message_history=...)`.

    Put it before capabilities that change the history in `after_run`: core runs `after_*` hooks in reverse order.

    It works in a plain `Agent.run`, and under every Pydantic AI durability capability. With `HarnessDurability` on
    Temporal its writes ride on the activities that run anyway.
    """

    agent_name: str | None = None
    """The logical agent's name. The run id is then derived from it and the context's run id."""
    run_id: str | None = None
    """The id of exactly one `Agent.run` call, for tests and one-off scripts. Used again, it is refused."""
    parent_run_id: str | None = None
    """The run that started this one. By default that of the tool call that this run is started in."""
    metadata: dict[str, str] = field(default_factory=dict[str, str])
    """Kept with the run and with each of its events."""
    capture_frontier: bool = False
    """Also save what a model request is about to send, and its response before its tools run."""
    boundaries: Literal['inline', 'dedicated'] = 'inline'
    """On a durable engine: `inline` lets the writes ride on model-request and tool-call activities (Temporal with
    `HarnessDurability`); `dedicated` makes each a named operation of its own, a row in the Temporal UI."""
    tool_recovery: effects.ToolRecovery = 'declared'
    """Whether a retried attempt runs a tool whose earlier attempt's outcome is unknown."""
    on_unknown: effects.OnUnknown = 'report'
    """What becomes of a call whose outcome is unknown and that must not run again."""

    @classmethod
    def from_spec(
        cls,
        *,
        backend: str = 'memory',
        database: str | None = None,
        directory: str | None = None,
        max_snapshots_per_run: int | None = None,
        **settings: Any,
    ) -> StepPersistence[Any]:
        """Build one from a serialized spec.

        `backend` is `memory`, `file` (with `directory`) or `sqlite` (with `database`).

        Raises:
            ConfigurationError: The backend is unknown, or its settings do not fit.
        """
        store = store_from_spec(
            backend, database=database, directory=directory, max_snapshots_per_run=max_snapshots_per_run
        )
        return StepPersistence[Any](store=store, **settings)

    def compaction_transcript_handle(self) -> str | None:
        """Return the id under which this run's history can be found; `None` outside a run.

        It is no promise that the history before a compaction is still there.
        """
        return self._state.run.run_id if self._state is not None else None

    # --- the run ---

    def get_default_run_id(self) -> str | None:
        """Give a run that a tool starts the same id in every attempt of the tool call."""
        call = current_tool_call.get()
        return call.next_nested_run_id() if call is not None else None

    async def for_run(self, ctx: RunContext[AgentDepsT]) -> AbstractCapability[AgentDepsT]:
        """Resolve the run's id and parent, and keep its state on a copy of the capability.

        Raises:
            InvalidRunIdError: The id is too long or not path-safe.
            MissingRunIdError: There is no id.
        """
        copy = replace(self)
        behind = take_behind(self.id)
        if behind.continued is not None:
            copy._state = RunState.continued(ContinuedRun.load(behind.continued))
            return copy
        run_id = resolve_run_id(explicit=self.run_id, agent_name=self.agent_name, context_run_id=ctx.run_id)
        call = current_tool_call.get()
        copy._state = RunState(
            RunFacts(
                run_id=run_id,
                registration_id=f'{call.record.ledger_key}/{ctx.run_id}' if call is not None else '',
                conversation_id=ctx.conversation_id,
                parent_run_id=self.parent_run_id if self.parent_run_id is not None else current_run_id.get(),
                agent_name=self.agent_name,
                metadata=dict(self.metadata),
                attempt=max(1, call.record.attempts) if call is not None else 1,
            ),
            saved_length=behind.stored_messages,
        )
        return copy

    async def wrap_run(self, ctx: RunContext[AgentDepsT], *, handler: WrapRunHandler) -> AgentRunResult[Any]:
        """Make this run the parent of those that its tools start."""
        with having(current_run_id, self._running.run.run_id):
            return await handler()

    async def before_run(self, ctx: RunContext[AgentDepsT]) -> None:
        """Register the run and write `run_started`.

        Raises:
            DuplicateRunError: The run id belongs to another run.
        """
        state = self._running
        carriers = [item for item in ctx.capabilities.values() if isinstance(item, BoundaryCarrier)]
        state.carrier = next((carrier for carrier in carriers if carrier.carries_boundaries), None)
        state.rides = state.carrier is not None and self.boundaries == 'inline'
        if not state.run.registration_id:
            carrier = state.carrier
            identity = carrier.next_registration_id() if carrier else await self._registration_identity(ctx)
            state.run = replace(state.run, registration_id=identity)
        await self._start(ctx)

    async def after_run(self, ctx: RunContext[AgentDepsT], *, result: AgentRunResult[Any]) -> AgentRunResult[Any]:
        """Write `run_completed`, and the final history if it is not the one that was saved last."""
        await self._end(ctx, 'run_completed', result.all_messages())
        return result

    async def on_run_error(self, ctx: RunContext[AgentDepsT], *, error: BaseException) -> AgentRunResult[Any]:
        """Save the history as it is at the failure, write `run_failed`, and raise the error again."""
        if isinstance(error, Exception | anyio.get_cancelled_exc_class()):
            # A cancelled run's scope would cancel these writes too.
            with anyio.CancelScope(shield=True):
                try:
                    await self._fail(ctx, error)
                except Exception as failure:
                    raise failure from error
        raise error

    async def _fail(self, ctx: RunContext[AgentDepsT], error: BaseException) -> None:
        live, text = self._running.live, error_text(error)
        try:
            await self._end(ctx, 'run_failed', live if has_response(live) else None, error=text)
        except NotStorableError as refused:
            # The end is told all the same; earlier snapshots are there.
            await self._end(ctx, 'run_failed', None, error=f'{text}; its history was not saved: {refused}')

    async def before_node_run(
        self, ctx: RunContext[AgentDepsT], *, node: AgentNode[AgentDepsT]
    ) -> AgentNode[AgentDepsT]:
        """Hold the live history; with `capture_frontier` save a response before its tools run."""
        state = self._running
        state.live, state.last_step = ctx.messages, max(state.last_step, ctx.run_step)
        if (
            self.capture_frontier
            and not state.rides
            and isinstance(node, CallToolsNode)
            and snapshot_state(ctx.messages) == 'interrupted'
        ):
            await self._save(ctx, ctx.messages)
        return node

    async def after_node_run(
        self, ctx: RunContext[AgentDepsT], *, node: AgentNode[AgentDepsT], result: NodeResult[AgentDepsT]
    ) -> NodeResult[AgentDepsT]:
        """Save a snapshot once every tool of a response has returned; when riding, the next request's activity does."""
        state = self._running
        state.live, state.last_step = ctx.messages, max(state.last_step, ctx.run_step)
        if not state.rides and isinstance(node, CallToolsNode):
            # The returns are in the next node's request, not in the history yet. The live list must not see them.
            settled = [*ctx.messages, result.request] if isinstance(result, ModelRequestNode) else [*ctx.messages]
            if is_provider_valid(settled):
                await self._save(ctx, settled)
        return result

    # --- model requests ---

    async def wrap_model_request(
        self,
        ctx: RunContext[AgentDepsT],
        *,
        request_context: ModelRequestContext,
        handler: WrapModelRequestHandler,
    ) -> ModelResponse:
        """When riding, number the request and tell of the snapshot that its activity saved."""
        state = self._running
        if not state.rides:
            return await handler(request_context)
        riding = state.request = RidingRequest(state.next_request())
        try:
            response = await handler(request_context)
        finally:
            state.request = None
        if riding.dispatches:
            state.ended.clear()
        if riding.saved is not None:
            await self._tell_saved(ctx, riding.saved)
        return response

    async def before_model_request(
        self, ctx: RunContext[AgentDepsT], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Write `model_request_started`; with `capture_frontier` save the history that is about to be sent."""
        state = self._running
        if not state.rides:
            if self.capture_frontier:
                await self._save(ctx, ctx.messages)
            state.next_request()
            await self._request_event(ctx, 'model_request_started')
        return request_context

    async def after_model_request(
        self, ctx: RunContext[AgentDepsT], *, request_context: ModelRequestContext, response: ModelResponse
    ) -> ModelResponse:
        """Write `model_request_completed`."""
        if not self._running.rides:
            await self._request_event(ctx, 'model_request_completed')
        return response

    async def on_model_request_error(
        self, ctx: RunContext[AgentDepsT], *, request_context: ModelRequestContext, error: Exception
    ) -> ModelResponse:
        """Write `model_request_failed` and raise the error again; `on_run_error` saves the history."""
        if not self._running.rides:
            await self._request_event(ctx, 'model_request_failed', error=error_text(error))
        raise error

    # --- tool calls ---

    async def wrap_tool_execute(
        self,
        ctx: RunContext[AgentDepsT],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: ValidatedToolArgs,
        handler: WrapToolExecuteHandler,
    ) -> Any:
        """Keep the ledger around the tool, where its attempt does not do it itself."""
        state = self._running
        facts = ToolCallFacts(
            tool_call_id=call.tool_call_id,
            tool_name=call.tool_name,
            step_index=ctx.run_step,
            occurrence=state.next_occurrence(ctx.run_step, call.tool_call_id),
            retryable=is_recovery_retryable(tool_def),
        )
        if state.carrier is not None and not state.carrier.runs_in_workflow(tool_def):
            return await self._run_carried(ctx, facts, args, handler)
        facts = facts.keyed(state.run, args)
        if state.rides:
            return await self._run_in_workflow(facts, args, handler)
        return await self._run_with_ledger(ctx, facts, args, handler)

    async def _run_carried(
        self,
        ctx: RunContext[AgentDepsT],
        facts: ToolCallFacts,
        args: ValidatedToolArgs,
        handler: WrapToolExecuteHandler,
    ) -> Any:
        """Run a tool whose activity keeps the ledger; with dedicated boundaries, announce it and write its end."""
        state = self._running
        place = (facts.step_index, facts.tool_call_id)
        if not state.rides:
            facts = replace(facts.keyed(state.run, args), announced=True)
            await self._announce(ctx, facts)
        state.calls[place] = facts
        try:
            value = await handler(args)
        except BaseException as error:
            if not state.rides:
                with anyio.CancelScope(shield=True):
                    await self._tool_ended(ctx, facts, ended_with_error(error))
            raise
        finally:
            del state.calls[place]
        if not state.rides:
            await self._tool_ended(ctx, facts, Ended('returned'))
        return value

    async def _run_in_workflow(
        self, facts: ToolCallFacts, args: ValidatedToolArgs, handler: WrapToolExecuteHandler
    ) -> Any:
        """Run a tool in workflow code. Replay makes it durable; its record goes with the next boundary that leaves."""
        state = self._running
        record = facts.effect(state.run, holder=state.run.registration_id)
        with tool_call_scope(state.run.run_id, record, in_workflow=True) as active:
            try:
                value = await handler(args)
            except Exception as error:
                state.ended.append(_ended_call(facts, active.record, ended_with_error(error)))
                raise
        state.ended.append(_ended_call(facts, active.record, ended_with_value(value)))
        return value

    async def _run_with_ledger(
        self,
        ctx: RunContext[AgentDepsT],
        facts: ToolCallFacts,
        args: ValidatedToolArgs,
        handler: WrapToolExecuteHandler,
    ) -> Any:
        """Run a tool between the two ledger operations, unless the ledger says that it must not run."""
        state = self._running
        holder = f'{state.run.registration_id}:{state.run.attempt}'
        claim = await self._claim(ctx, facts, holder=holder, recovery=self.tool_recovery)
        record = facts.effect(state.run, holder=holder, attempts=claim['attempts'], started_at=claim['started_at'])
        if claim['decision'] == 'reuse':
            return replay(claim['value'].encode())
        if claim['decision'] == 'unknown':
            return self._give_unknown(record, claim['text'])
        with tool_call_scope(state.run.run_id, record):
            try:
                value = await handler(args)
            except (Exception, anyio.get_cancelled_exc_class()) as error:
                with anyio.CancelScope(shield=True):
                    await self._finish(ctx, facts, record, ended_with_error(error))
                raise
        await self._finish(ctx, facts, record, ended_with_value(value))
        return value

    def _give_unknown(self, record: ToolEffectRecord, text: str) -> Any:
        if self.on_unknown == 'fail':
            raise UnknownToolOutcomeError(record)
        if self.on_unknown == 'suspend':
            raise CallDeferred(metadata={effects.UNKNOWN_OUTCOME_METADATA_KEY: text})
        raise ToolFailed(text)

    # --- what goes on in another workflow run ---

    def behind(self) -> ContinuedRun:
        """Return what the run has behind it. Called in workflow code, between steps."""
        return self._running.behind()

    def unsaved(self, messages: Sequence[ModelMessage], *, whole: bool) -> SnapshotFacts:
        """Return the snapshot of a history that the store may not hold yet, or with `whole` all of it."""
        return self._running.to_save(encode_history(messages), messages, whole=whole)

    def saved(self, messages: Sequence[ModelMessage]) -> None:
        """Note that a history was saved."""
        self._running.saved(encode_history(messages))

    # --- what rides on an activity ---

    def sending(self, request_context: ModelRequestContext | None) -> None:
        """Hold the model request that is on its way to an activity. Core shapes this object until it is sent."""
        if self._state is not None:
            self._state.sending = request_context

    def frame(self, ctx: RunContext[Any]) -> dict[str, Any] | None:
        """Return what an activity that is being scheduled has to know to write its boundaries.

        Called in workflow code.
        """
        state = self._state
        if state is None or state.carrier is None:
            return None
        frame: dict[str, Any] = {'id': self.id, 'run': state.run.dump()}
        call = state.calls.get((ctx.run_step, ctx.tool_call_id)) if ctx.tool_call_id is not None else None
        if call is not None:
            frame['call'] = call.dump()
        elif state.request is not None and state.sending is not None:
            frame['request'] = state.riding_request(
                ctx.messages, state.sending.messages, step_index=ctx.run_step, capture_frontier=self.capture_frontier
            ).dump()
        return frame


def _ended_call(facts: ToolCallFacts, record: ToolEffectRecord, ended: Ended) -> EndedToolCall:
    return EndedToolCall(
        call=facts.dump(),
        outcome=ended.outcome,
        value=ended.value.decode() if ended.value is not None else None,
        error=ended.error,
        idempotency_key=record.idempotency_key,
        effect_summary=record.effect_summary,
    )
