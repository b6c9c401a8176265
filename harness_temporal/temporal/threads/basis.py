"""What the next run of a thread goes on from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from harness_temporal.state.envelope import HarnessState
from harness_temporal.temporal.agent_run import AgentRunInput, AgentRunOutput
from harness_temporal.temporal.carried_state import CarriedState, SnapshotReference
from harness_temporal.temporal.threads.values import Recovery, ThreadInput


@dataclass
class Basis:
    """The last good state, and the runs that went wrong since.

    The next run goes on from the newest of those that left a snapshot. What the effect ledger holds of it stands, so
    that no effect is repeated. After one that was cancelled, no call is made again by itself.
    """

    state: CarriedState
    recoveries: list[Recovery]
    """The newest first."""
    answers: Any
    """To the calls that the state leaves open."""

    def run_input(self, input: ThreadInput, prompt: str | None) -> AgentRunInput:
        """Return what the next run starts with."""
        recovery = self.recoveries[0] if self.recoveries else None
        return AgentRunInput(
            agent=input.agent,
            prompt=prompt,
            deps=input.deps,
            conversation_id=input.thread_id,
            continue_from=recovery.snapshot if recovery is not None else None,
            state=recovery.capabilities if recovery is not None else self.state,
            answers=self.answers,
            tool_recovery=recovery.tool_recovery if recovery is not None else 'declared',
            usage_limits=input.options.usage_limits,
            history_budget=input.options.history_budget,
        )

    def advance(self, output: AgentRunOutput) -> None:
        """Go on from a run that ended as it should."""
        assert output.state is not None
        self.state, self.recoveries, self.answers = output.state, [], None

    def recover_from(self, run_id: str, state: HarnessState | None, *, cancelled: bool) -> None:
        """Go on from where a run stood when it failed or was cancelled. `state` is its candidate."""
        capabilities = state if state is not None else self.state.without_history()
        recovery = Recovery(
            snapshot=SnapshotReference(run_id=run_id, include_interrupted=True),
            tool_recovery='never' if cancelled else 'declared',
            capabilities=CarriedState(document=capabilities.with_encoded_history(())),
        )
        self.recoveries.insert(0, recovery)

    def forget_newest(self) -> None:
        """Go on from what was before the newest run that went wrong: it left nothing."""
        del self.recoveries[0]

    def used_answers(self) -> None:
        """Note that a run was given the answers. Approvals of it are no permission for a later one."""
        if self.answers is not None:
            self.answers = {**self.answers, 'recovery': True}
