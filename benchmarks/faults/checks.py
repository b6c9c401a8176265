"""What must hold of a run whatever was killed: the oracle, the ledger, the log, the snapshots and Temporal agree."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from pydantic_ai.messages import ModelMessage

from benchmarks.faults.agents import COLLEAGUE
from benchmarks.faults.effects import check_effects
from benchmarks.faults.findings import Findings
from benchmarks.faults.histories import Went
from benchmarks.faults.kept import Kept
from benchmarks.faults.lineage import runs_below, wrong_lineage
from benchmarks.faults.oracle import Oracle
from benchmarks.faults.runs import Driven, Leg, Status, persisted_id
from benchmarks.faults.script import answers, prompts
from benchmarks.faults.threads import DrivenThread
from harness_temporal.errors import HarnessError
from harness_temporal.records import ToolEffectRecord
from harness_temporal.stores import StepStore


async def check_run(
    store: StepStore, oracle: Oracle, driven: Driven, went: Mapping[str, Went], found: Findings
) -> None:
    """Look at one run, its resumptions and its delegates; `went` is by the ids of the workflows."""
    name = driven.planned.workflow_id
    if (status := driven.legs[-1].status) != 'completed':
        found.lost_runs.append(f'{name} is {status}: {driven.legs[-1].failure}')
    ledger: list[ToolEffectRecord] = []
    for leg in driven.legs:
        if leg.status == 'lost':
            continue
        try:
            stated = await _stated(store, leg)
            ledger += await _check_workflow(store, went[leg.workflow_id], leg.status, [leg.run_id], stated, found)
        except HarnessError as error:
            found.inconsistencies.append(f'{leg.workflow_id} cannot be read: {error!r}')
    last = driven.legs[-1].ended
    told = json.loads(last.output) if last is not None and last.status == 'completed' else None
    check_effects(driven.planned, oracle, ledger, told, found)


async def check_thread(store: StepStore, oracle: Oracle, driven: DrivenThread, went: Went, found: Findings) -> None:
    """Look at one thread, the runs of its turns and their delegates."""
    name = driven.planned.workflow_id
    if driven.ended is None:
        found.lost_runs.append(f'{name} is lost; its messages are {driven.messages}')
        return
    try:
        runs = await store.list_runs(conversation_id=driven.planned.thread_id)
        said = list((await driven.ended.state.load(store)).message_history)
        status: Status = 'failed' if driven.failures else 'completed'
        run_ids = [run.run_id for run in runs]
        ledger = await _check_workflow(store, went, status, run_ids, len(said), found)
    except HarnessError as error:
        found.inconsistencies.append(f'{name} cannot be read: {error!r}')
        return
    found.inconsistencies += [f'{name}: {text}' for text in _contradicts_host(driven, said)]
    told: dict[str, str] = {}
    for output in driven.outputs:
        told |= json.loads(output)
    check_effects(driven.planned, oracle, ledger, told, found)


async def _stated(store: StepStore, leg: Leg) -> int | None:
    """Return how many messages the state has with which a run ended."""
    if leg.ended is None or leg.ended.state is None:
        return None
    return len((await leg.ended.state.load(store)).message_history)


async def _check_workflow(
    store: StepStore, went: Went, status: Status, run_ids: Sequence[str], stated: int | None, found: Findings
) -> list[ToolEffectRecord]:
    """Look at the runs of one workflow and all below it, and return their entries in the ledger.

    Args:
        store: Where they are kept.
        went: How the workflow went.
        status: How it ended.
        run_ids: Its own runs, in order.
        stated: How many messages its state has.
        found: Takes what does not hold.
    """
    own = [await Kept.of(store, run_id) for run_id in run_ids]
    below: dict[str, str | None] = {}
    for run_id in run_ids:
        below |= await runs_below(store, run_id)
    others = [await Kept.of(store, run_id) for run_id in below]
    wrong = [*wrong_lineage(went, below)]
    for kept in (*own, *others):
        wrong += kept.contradictions()
    wrong += _contradicts_temporal(went, status, own, stated)
    for child in went.children:
        if child.is_completed:
            kept = await Kept.of(store, persisted_id(COLLEAGUE, child.first_run_id))
            wrong += [
                f'{child.workflow_id}: {text}' for text in _contradicts_temporal(child, 'completed', [kept], None)
            ]
    found.inconsistencies += [f'{went.workflow_id}: {text}' for text in wrong]
    return [entry for kept in (*own, *others) for entry in kept.effects]


def _contradicts_temporal(went: Went, status: Status, runs: Sequence[Kept], stated: int | None) -> Iterator[str]:
    """Compare the records of a workflow's runs with how Temporal says that it went."""
    if status == 'failed':
        return
    counts = went.scheduled()
    for kept in runs:
        if kept.ends != ['run_completed']:
            yield f'it is {status}, and its log has the ends {kept.ends}'
        if not kept.snapshots:
            yield 'it has no snapshot'
    entries = sum(len(kept.effects) for kept in runs)
    # A tool that starts a child workflow has no activity of its own.
    if counts['call_tool'] + len(went.children) != entries:
        yield f'Temporal has {counts["call_tool"]} tool calls and {len(went.children)} delegates, the ledger {entries}'
    requests = counts['model_request'] + counts['model_request_stream']
    answered = sum(kept.answered_requests for kept in runs)
    if requests != answered:
        yield f'Temporal has {requests} model requests, the log {answered}'
    newest = len(runs[-1].snapshots[-1].messages) if runs and runs[-1].snapshots else 0
    if stated is not None and newest != stated:
        yield f'its state has {stated} messages, its newest snapshot {newest}'


def _contradicts_host(driven: DrivenThread, said: Sequence[ModelMessage]) -> Iterator[str]:
    """Compare a thread with what its host sent and was answered."""
    assert driven.ended is not None
    turns = [message.turns for message in driven.messages]
    if turns != [{number} for number in range(1, len(turns) + 1)] or driven.ended.turns != len(turns):
        yield f'its messages had the turns {turns}, and it had {driven.ended.turns}'
    heard = prompts(said)
    # What a failed turn was asked is gone if that left nothing.
    expected = [message.prompt for message in driven.messages if message.is_answered or message.prompt in heard]
    if heard != expected:
        yield f'its history has the messages {heard}, and it was sent {expected}'
    if answers(said) != driven.outputs:
        yield f'its history has the answers {answers(said)}, and it gave {driven.outputs}'
    if unanswered := [message for message in driven.to_be_answered if not message.is_answered]:
        yield f'it did not answer {unanswered}'
