"""A model of the ledger: whatever attempts, crashes and resets there are, an effect happens at most once.

The rules drive the real code over a real store. The oracle is a count that only the model keeps.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from harness_temporal.errors import ToolEffectConflictError
from harness_temporal.records import ToolEffectRecord
from harness_temporal.step_persistence import InMemoryStepStore, SqliteStepStore, StepStore, effects
from harness_temporal.step_persistence.facts import RunFacts, ToolCallFacts
from harness_temporal.step_persistence.outcomes import Ended

T = TypeVar('T')
RUN = RunFacts(run_id='run-1', registration_id='r')
HOLDERS = count()


@dataclass
class Call:
    """One tool call, and what the oracle knows of it."""

    facts: ToolCallFacts
    happened: int = 0
    results: list[bytes] = field(default_factory=list[bytes])
    """What later attempts were given."""
    over: bool = False
    """Whether its run has failed, because an undeclared tool raised."""


@dataclass
class Attempt:
    """One that holds a call, or held it: it may be dead, stopped, or replaced without knowing it."""

    call: Call
    record: ToolEffectRecord
    acted: bool = False


class LedgerMachine(RuleBasedStateMachine):
    """Attempts at calls, by any number of workers at once. One that is never heard of again has crashed."""

    attempts = Bundle('attempts')
    calls: list[Call]
    store: StepStore

    def open(self) -> StepStore:
        raise NotImplementedError

    def run_async(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    @initialize(declared=st.lists(st.booleans(), min_size=1, max_size=3))
    def begin(self, declared: list[bool]) -> None:
        self.runner = asyncio.Runner()
        self.store = self.open()
        self.calls = [
            # The same id, as providers may repeat it.
            Call(ToolCallFacts(tool_call_id='call', tool_name='tool', step_index=1, retryable=one).keyed(RUN, {'n': n}))
            for n, one in enumerate(declared)
        ]

    def teardown(self) -> None:
        if hasattr(self, 'runner'):
            self.run_async(self.store.aclose())
            self.runner.close()

    @rule(target=attempts, which=st.integers(min_value=0, max_value=2))
    def attempt(self, which: int) -> Any:
        """Attempt a call: the first time, after a crash, beside a living attempt, after a reset or a resumption."""
        call = self.calls[which % len(self.calls)]
        if call.over:
            return None
        claim = self.run_async(
            effects.claim(self.store, RUN, call.facts, recovery='declared', holder=f'holder-{next(HOLDERS)}')
        )
        if isinstance(claim, effects.Run):
            return Attempt(call, claim.record)
        if isinstance(claim, effects.Reuse):
            call.results.append(claim.value)
        else:
            self.run_async(effects.report_unknown(self.store, RUN, call.facts, claim.record))
        return None

    @rule(attempt=attempts)
    def act(self, attempt: Attempt | None) -> None:
        """Have the effect, however late it is."""
        if attempt is not None and not attempt.acted:
            attempt.acted = True
            attempt.call.happened += 1

    @rule(attempt=consumes(attempts), outcome=st.sampled_from(['returned', 'retry', 'error', 'cancelled']))
    def end(self, attempt: Attempt | None, outcome: Any) -> None:
        """Write how an attempt ended. One that was replaced is refused, and nothing changes."""
        if attempt is None:
            return
        call, value = attempt.call, None
        if outcome == 'returned':
            self.act(attempt)
        if outcome in ('returned', 'retry'):
            value = f'"{attempt.record.holder}"'.encode()
        before = self.ledger()
        [held] = [entry for entry in before if entry.ledger_key == attempt.record.ledger_key]
        work = effects.finish(self.store, RUN, call.facts, attempt.record, Ended(outcome, value))
        if held.holder != attempt.record.holder:
            with pytest.raises(ToolEffectConflictError):
                self.run_async(work)
            assert self.ledger() == before
            return
        self.run_async(work)
        call.over = outcome == 'error' and not call.facts.retryable

    @rule()
    def restart(self) -> None:
        """Go on in another process."""
        self.run_async(self.store.aclose())
        self.store = self.open()

    # --- what always holds ---

    def ledger(self) -> list[ToolEffectRecord]:
        return self.run_async(self.store.list_tool_effects(run_id=RUN.run_id))

    @invariant()
    def undeclared_effects_happen_at_most_once(self) -> None:
        for call in getattr(self, 'calls', ()):
            assert call.facts.retryable or call.happened <= 1

    @invariant()
    def whatever_may_have_happened_is_in_the_ledger(self) -> None:
        if not hasattr(self, 'calls'):
            return
        entries = {entry.ledger_key: entry for entry in self.ledger()}
        unresolved = {
            entry.ledger_key for entry in self.run_async(self.store.list_unresolved_tool_effects(run_id=RUN.run_id))
        }
        for call in self.calls:
            entry = entries.get(call.facts.call_key)
            if entry is None:
                assert not call.happened
                continue
            assert (entry.status == 'started') == (entry.ledger_key in unresolved)
            assert entry.status != 'completed' or call.happened

    @invariant()
    def an_outcome_that_was_given_stays(self) -> None:
        for call in getattr(self, 'calls', ()):
            assert len(set(call.results)) <= 1

    @invariant()
    def every_start_is_in_the_log(self) -> None:
        if not hasattr(self, 'calls'):
            return
        events = self.run_async(self.store.list_events(run_id=RUN.run_id))
        starts = Counter(event.idempotency_key for event in events if event.kind == 'tool_call_started')
        assert set(starts.values()) <= {1}
        assert starts.total() == sum(entry.attempts for entry in self.ledger())


class InMemoryLedger(LedgerMachine):
    """Over the store in memory, which cannot be opened again."""

    def open(self) -> StepStore:
        self.kept = getattr(self, 'kept', None) or InMemoryStepStore()
        return self.kept


class SqliteLedger(LedgerMachine):
    """Over SQLite."""

    def open(self) -> StepStore:
        if not hasattr(self, 'folder'):
            self.folder = TemporaryDirectory()
        return SqliteStepStore(Path(self.folder.name, 'runs.db'))

    def teardown(self) -> None:
        super().teardown()
        if hasattr(self, 'folder'):
            self.folder.cleanup()


def _case(machine: type[LedgerMachine], examples: int) -> Callable[..., Any]:
    case = machine.TestCase
    case.settings = settings(
        max_examples=examples,
        stateful_step_count=30,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    return case


TestInMemoryLedger = _case(InMemoryLedger, 50)
TestSqliteLedger = _case(SqliteLedger, 8)
