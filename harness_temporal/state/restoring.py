"""Bring the unanswered calls of a restored history into a run, before its first model request."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from pydantic_ai import CallToolsNode, ModelRequestNode
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
)
from pydantic_ai.run import AgentRun
from pydantic_ai.tools import ToolApproved, ToolDefinition

from harness_temporal.errors import RunError
from harness_temporal.state.capability_state import StateWrite
from harness_temporal.state.deferred import DeferredToolResume
from harness_temporal.state.deferred_checks import check_tools
from harness_temporal.state.frontier import Frontier, unknown_result
from harness_temporal.state.recovery import Recorded, RecoveryPlan, plan_recovery
from harness_temporal.step_persistence.effects import ToolRecovery

UserPrompt = str | Sequence[UserContent] | None
RestoredNode = CallToolsNode[Any, Any] | ModelRequestNode[Any, Any]


@dataclass(frozen=True)
class Restoration:
    """What a run starts from when its history has unanswered calls."""

    messages: list[ModelMessage]
    frontier: Frontier
    policy: ToolRecovery
    resume: DeferredToolResume | None
    recorded: Recorded
    prompt: UserPrompt
    now: Callable[[], datetime]

    @property
    def head(self) -> list[ModelMessage]:
        """The history up to the response with the open calls: what Pydantic AI is given to prepare the tools for."""
        return self.messages[: self.frontier.index + 1]

    @property
    def requests(self) -> Mapping[str, ApprovalRequired | CallDeferred]:
        """Recorded requests of calls that no accepted result answers."""
        answers = self.resume.answers() if self.resume is not None else {}
        approved = self.resume.results.approvals if self.resume is not None and not self.resume.recovery else {}
        return {
            call_id: asked
            for call_id, asked in self.recorded.requests.items()
            if call_id not in answers and call_id not in approved
        }

    @property
    def writes(self) -> list[StateWrite]:
        """What the open calls are recorded to have written to capability state, in the order of the calls."""
        return [write for call in self.frontier.pending for write in self.recorded.writes.get(call.tool_call_id, ())]

    async def first_node(self, run: AgentRun[Any, Any], prepared: object) -> RestoredNode:
        """Decide about the open calls and return the node to go on with.

        `prepared` is the node that Pydantic AI would go on with: all the open calls, as if they were new.

        Raises:
            DeferredResumeError: An accepted answer does not fit the tools of this run.
            RunError: The response is not one whose calls could be restored.
        """
        if not isinstance(prepared, CallToolsNode):
            raise RunError('run_not_restorable', 'The last response is not finished, so its calls cannot be answered.')
        # No await before this: an export must not see the history without the answers that it has.
        run.all_messages().extend(self.messages[self.frontier.index + 1 :])
        manager = run.ctx.deps.tool_manager
        tools = {tool.name: tool for tool in manager.tool_defs}
        if self.resume is not None:
            check_tools(self.resume, tools)
            if not self.resume.recovery:
                return self._resumed(self.resume)
        return await self._recovered(run, tools)

    def _resumed(self, resume: DeferredToolResume) -> RestoredNode:
        results: dict[str, Any] = {call_id: 'skip' for call_id in self.frontier.answered}
        for call_id, result in resume.results.to_tool_call_results().items():
            # An approved call that the ledger knows has run under this approval before.
            ran = isinstance(result, ToolApproved) and call_id in self.recorded.answers
            results[call_id] = self.recorded.answers[call_id] if ran else result
        return CallToolsNode(
            self._response(self.frontier.response.parts),
            tool_call_results=results,
            tool_call_metadata=resume.results.metadata or None,
            user_prompt=self.prompt,
        )

    async def _recovered(self, run: AgentRun[Any, Any], tools: Mapping[str, ToolDefinition]) -> RestoredNode:
        # What the host accepted comes before what the ledger says.
        answers = {**self.recorded.answers, **(self.resume.answers() if self.resume is not None else {})}
        plan = plan_recovery(
            self.frontier.pending, policy=self.policy, tools=tools, answers=answers, requests=self.requests
        )
        settled = await self._settled(run, plan, answers)
        if plan.dispatched:
            if settled:
                run.all_messages().append(self._request(run, settled))
            return CallToolsNode(self._response(plan.dispatched), user_prompt=self.prompt)
        prompt = [UserPromptPart(self.prompt, timestamp=self.now())] if self.prompt is not None else []
        return ModelRequestNode(ModelRequest(parts=[*settled, *prompt]))

    async def _settled(
        self, run: AgentRun[Any, Any], plan: RecoveryPlan, answers: Mapping[str, Any]
    ) -> list[ModelRequestPart]:
        """Return the results that are known or known to be unknown, in the order of the calls."""
        parts: list[ModelRequestPart] = [unknown_result(call, self.now()) for call in plan.unknown]
        if plan.answered:
            # Pydantic AI makes the returns of accepted results; the request that it would send them with is not sent.
            given = {call.tool_call_id: answers[call.tool_call_id] for call in plan.answered}
            node = CallToolsNode[Any, Any](self._response(plan.answered), tool_call_results=given)
            following = await run.next(node)
            if isinstance(following, ModelRequestNode):
                parts.extend(following.request.parts)
        order = [call.tool_call_id for call in self.frontier.pending]
        results = [part for part in parts if isinstance(part, ToolReturnPart)]
        others = [part for part in parts if not isinstance(part, ToolReturnPart)]
        results.sort(key=lambda part: order.index(part.tool_call_id))
        return [*results, *others]

    def _response(self, parts: Sequence[ModelResponsePart]) -> ModelResponse:
        """Return the response with some of its calls only: the others are none of the node's business.

        It names no provider: with one, Pydantic AI would look for this very object in the history, to see what the
        provider had compacted before it.
        """
        return replace(self.frontier.response, parts=list(parts), provider_name=None)

    def _request(self, run: AgentRun[Any, Any], parts: list[ModelRequestPart]) -> ModelRequest:
        return ModelRequest(parts=parts, timestamp=self.now(), run_id=run.run_id, conversation_id=run.conversation_id)
