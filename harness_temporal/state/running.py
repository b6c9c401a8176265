"""Drive one run of an agent, and say at any moment what is safe to continue it from."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from copy import deepcopy
from dataclasses import replace
from typing import Any, cast

from pydantic_ai import CallToolsNode, ModelRequestNode, UserPromptNode
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import RunCancelled
from pydantic_ai.messages import AgentStreamEvent, ModelMessage, PartEndEvent
from pydantic_ai.run import AgentRun
from pydantic_ai.tools import DeferredToolRequests
from pydantic_ai.usage import RunUsage
from pydantic_graph import End

from harness_temporal.errors import HarnessError, RunCleanupError, StateError
from harness_temporal.state.candidates import safe_history
from harness_temporal.state.capability_state import CapabilityState
from harness_temporal.state.context import HarnessContext, starting
from harness_temporal.state.deferred import DeferredToolResume
from harness_temporal.state.envelope import HarnessState
from harness_temporal.state.environments import environment_states
from harness_temporal.state.failures import causes_of, describe
from harness_temporal.state.frontier import find_frontier
from harness_temporal.state.progress import RunPause, RunProgress
from harness_temporal.state.results import RunFailure, RunResult
from harness_temporal.state.starting import RunStart


class Run:
    """One run, from its start to its result."""

    def __init__(self, start: RunStart) -> None:
        self._start = start
        self._restoration = start.restoration()
        self._agent_run: AgentRun[Any, Any] | None = None
        self._restored = False
        self._cancelled = False
        self._over = False
        self._interrupted = False
        self._abandoned = False
        self._closed = False
        self._finished: set[int] | None = None  # parts of the latest streamed response that had come to their end
        self._capabilities = CapabilityState(start.state.agent_context_state)
        if self._restoration is not None:
            self._capabilities.apply(self._restoration.writes)
        self.context = HarnessContext(start.state.thread_id, self._capabilities)
        self.outcome: RunResult[Any] | None = None
        """How the run ended, also when closing it failed afterwards."""
        self._candidate: HarnessState | None = None
        self.paused: RunPause | None = None
        """Where the run stopped between two steps, because its host asked it to; `export` gives its state then."""
        self._walked = 0

    @property
    def run_id(self) -> str:
        """The id that the run's messages carry."""
        return self._start.progress.run_id if self._start.progress is not None else self._start.run_id

    @property
    def conversation_id(self) -> str:
        """The conversation that the run belongs to."""
        return self._start.conversation_id

    @property
    def capabilities(self) -> Mapping[str, AbstractCapability[Any]]:
        """The capabilities of the run that is being driven, by id."""
        assert self._agent_run is not None
        return self._agent_run.ctx.deps.run_capabilities_by_id

    @property
    def messages(self) -> Sequence[ModelMessage]:
        """The thread's messages at this moment. Not to be changed."""
        if self._agent_run is None or not self._restored:
            return self._start.history
        return self._agent_run.all_messages()

    @property
    def usage(self) -> RunUsage:
        """What the run has used up to this moment."""
        return deepcopy(self._agent_run.usage) if self._agent_run is not None else RunUsage()

    @property
    def result(self) -> RunResult[Any] | None:
        """The outcome, once the run is over and was closed cleanly."""
        return self.outcome if self._over else None

    def delivered(self) -> RunResult[Any]:
        """Return the result of a run that is over."""
        assert self.outcome is not None
        return self.outcome

    def cancel(self) -> None:
        """Ask the run to end as `cancelled` at the next await."""
        self._cancelled = True
        if self._agent_run is not None:
            self._agent_run.cancel()

    def export(self) -> HarnessState:
        """Return the state at the latest boundary: never a part of a response, never some results of a batch.

        Raises:
            StateError: The history holds what JSON cannot.
        """
        if self._candidate is None and self._interrupted:
            self._candidate = self._safe_state()
        return self._candidate if self._candidate is not None else self._state(self.messages)

    def unanswered_resume(self) -> DeferredToolResume | None:
        """Return the accepted answers that the history has not taken in yet."""
        resume = self._start.resume
        return resume.remaining(self.export().message_history) if resume is not None else None

    async def events(self) -> AsyncGenerator[AgentStreamEvent, None]:
        """Run to the end. Without streaming there are no events, and a model request is all or nothing."""
        if self._cancelled:
            self._end(self._cancellation())
            return
        failure: BaseException | None = None
        arguments = self._start.arguments(self._start.given_history(self._restoration))
        try:
            async with AsyncExitStack() as stack:
                with starting(self._start.setup(self._restoration, self.context)):
                    run = await stack.enter_async_context(self._start.agent.iter(**arguments))
                self._agent_run = run
                if self._start.progress is not None:
                    self._start.progress.resume(run)
                try:
                    async with aclosing(self._advance(run)) as events:
                        async for event in events:
                            yield event
                except BaseException as error:
                    failure = error
                    raise
        except RunCancelled:
            if self._abandoned:
                self._interrupted = True
            else:
                self._end(self._cancellation())
        except (GeneratorExit, asyncio.CancelledError, KeyboardInterrupt, SystemExit):
            self._interrupted = True
            raise
        except Exception as error:  # noqa: BLE001 (a failed run is a result)
            self._fail(error, failure)
        else:
            if self.paused is None:
                self._end(self._conclusion())
        finally:
            self._closed = True

    async def abandon(self, events: AsyncGenerator[AgentStreamEvent, None]) -> None:
        """End a run whose consumer leaves before its end. There is no result then, but a state to export."""
        if self._agent_run is None or self._closed:
            await events.aclose()
            return
        # Not by closing the generator: Pydantic AI keeps what a cancelled run has done, and closes it in order.
        self._abandoned = True
        self._agent_run.cancel()
        async for _ in events:
            pass

    def _end(self, outcome: RunResult[Any]) -> None:
        self._settle(outcome)
        self._over = True

    def _settle(self, outcome: RunResult[Any]) -> None:
        self.outcome, self._candidate = outcome, outcome.state

    def _fail(self, error: Exception, failure: BaseException | None) -> None:
        """Tell what the agent raised from what closing the run raised.

        Raises:
            RunCleanupError: Closing the run failed, after it had ended one way or the other.
            Exception: The run did not begin, or the error is this package's own: the run's record, its state or the
                answers to its calls are wrong.
        """
        if self._agent_run is None:
            self._interrupted = True
            raise error
        if failure is None:
            self._settle(self._conclusion())
            raise RunCleanupError(self.outcome, causes_of(error)) from error
        self._interrupted = True
        if failure is not error:
            if isinstance(failure, Exception):
                self._settle(self._failure(failure))
            raise RunCleanupError(self.outcome, causes_of(error)) from failure
        if isinstance(error, HarnessError):
            raise error
        self._end(self._failure(error))

    # --- driving ---

    async def _advance(self, run: AgentRun[Any, Any]) -> AsyncGenerator[AgentStreamEvent, None]:
        node: Any = run.next_node
        restoration = self._restoration
        if restoration is not None:
            # Without a prompt Pydantic AI only prepares the tools here; the prompt follows the results.
            cast('UserPromptNode[Any, Any]', node).user_prompt = None
        node = await run.next(node)
        if restoration is not None:
            node = await restoration.first_node(run, cast(object, node))
        self._restored = True
        while not isinstance(node, End):
            if self._pauses_before(run, node):
                return
            if self._start.streaming:
                async with aclosing(self._stream(run, node)) as events:
                    async for event in events:
                        yield event
            node = await run.next(node)

    def _pauses_before(self, run: AgentRun[Any, Any], node: object) -> bool:
        """Stop before a model request, if the host wants that. What it would send is then the history's end."""
        if not isinstance(node, ModelRequestNode):
            return False
        state = run.ctx.state
        self._walked += len(state.message_history)
        begun = self._start.progress.steps if self._start.progress is not None else 0
        # Without a step of its own a run would be handed on for ever. Messages that wait to be sent are in no history.
        if state.run_step == begun or state.pending_messages:
            return False
        request = cast('ModelRequestNode[Any, Any]', node).request
        stamped = replace(request, run_id=state.run_id, conversation_id=state.conversation_id)
        messages = [*run.all_messages(), stamped]
        if not self._start.pauses(self._walked, messages):
            return False
        progress = RunProgress.of(run, renews_system_prompts=self._start.renews_system_prompts)
        self.paused = RunPause(progress, messages)
        self._candidate = self._state(self.paused.messages)
        return True

    async def _stream(self, run: AgentRun[Any, Any], node: Any) -> AsyncGenerator[AgentStreamEvent, None]:
        if isinstance(node, ModelRequestNode):
            request = cast('ModelRequestNode[Any, Any]', node)
            self._finished = set()
            async with request.stream(run.ctx) as response:
                async for event in response:
                    if isinstance(event, PartEndEvent):
                        self._finished.add(event.index)
                    yield event
        elif isinstance(node, CallToolsNode):
            tools = cast('CallToolsNode[Any, Any]', node)
            async with tools.stream(run.ctx) as results:
                async for event in results:
                    yield event

    # --- what there is of the run ---

    def _state(self, messages: Sequence[ModelMessage]) -> HarnessState:
        return self._start.state.advanced(
            message_history=messages,
            agent_context_state=self._capabilities.snapshot(),
            environment_states=environment_states(self._start.bindings.environments),
        )

    def _safe_state(self) -> HarnessState:
        if self._agent_run is None or not self._restored:
            return self._state(self._start.history)
        messages = self._agent_run.all_messages()
        resume = self._start.resume
        leave_open = resume is not None and resume.remaining(messages) is not None
        kept = safe_history(messages, finished=self._finished, leave_open=leave_open, now=self._start.now())
        return self._state(kept)

    def _conclusion(self) -> RunResult[Any]:
        assert self._agent_run is not None
        ended = self._agent_run.result
        assert ended is not None
        output: Any = ended.output
        facts = self._facts(self._state(ended.all_messages()))
        if not isinstance(output, DeferredToolRequests) or not self._start.bindings.deferred_tools_supported:
            return RunResult(status='completed', output=output, **facts)
        frontier = find_frontier(ended.all_messages())
        if frontier is not None and frontier.repeated:
            # Pydantic AI refuses these among tools of one kind only.
            error = RunFailure(
                'tool_call_id_repeated', 'The model gave one id to two calls, so an answer could be for either.'
            )
            return RunResult(status='failed', error=error, **facts)
        return RunResult(status='suspended', deferred=deepcopy(output), suspend_reason='deferred', **facts)

    def _failure(self, error: Exception) -> RunResult[Any]:
        return RunResult(
            status='failed', error=describe(error), exception=error, **self._facts(self._interrupted_state())
        )

    def _cancellation(self) -> RunResult[Any]:
        return RunResult(status='cancelled', **self._facts(self._interrupted_state()))

    def _interrupted_state(self) -> HarnessState | None:
        """Return the candidate, or `None` if the history cannot be kept: that is not to hide how the run ended."""
        self._interrupted = True
        try:
            return self.export()
        except StateError:
            return None

    def _facts(self, state: HarnessState | None) -> dict[str, Any]:
        messages = state.message_history if state is not None else ()
        # Results that close restored calls belong to no run, and adjacent requests of the history may have become one.
        old = min(len(self._start.history), len(messages))
        mine = (index for index, message in enumerate(messages) if message.run_id == self.run_id)
        return {
            'thread_id': self._start.state.thread_id,
            'run_id': self.run_id,
            'state': state,
            'usage': self.usage,
            'first_new_message': min(old, next(mine, old)),
        }
