"""Whatever is damaged, a decoder raises an error of this package, or gives what it understood; never anything else."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults
from temporalio.api.common.v1 import Payload

from harness_temporal.errors import HarnessError
from harness_temporal.history import decode_message, encode_message
from harness_temporal.importers import FileSource, import_runs
from harness_temporal.importers.markers import restore
from harness_temporal.media import DiskMediaStore, MediaStore
from harness_temporal.state import DeferredToolResume, HarnessState
from harness_temporal.state.deferred_documents import read_resume, resume_document
from harness_temporal.step_persistence import outcomes
from harness_temporal.step_persistence.carrying import is_carrier, unpack
from harness_temporal.stores import FileStepStore, InMemoryStepStore
from harness_temporal.stores.externalizer import Externalizer
from harness_temporal.temporal.payloads import Key, KeyRing, PayloadStorage
from harness_temporal.testing.samples import a_response, a_run, a_snapshot, an_end, an_event, asks, says
from tests.faults.mutating import JSON, changed, damaged

FUZZ = settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
FEWER = settings(FUZZ, max_examples=25)
"""For what works on files."""


def only_ours(work: Callable[[], Any]) -> None:
    """Do something that may raise an error of this package."""
    with suppress(HarnessError):
        work()


def state_document() -> dict[str, Any]:
    state = HarnessState.new(message_history=[asks('hello'), says('hi')])
    return json.loads(state.model_dump_json())


STATE = state_document()
RESUME = resume_document(
    DeferredToolResume(
        DeferredToolRequests(
            calls=[ToolCallPart('out', {}, tool_call_id='a')], approvals=[ToolCallPart('ask', {}, tool_call_id='b')]
        ),
        DeferredToolResults(calls={'a': {'x': [1]}}, approvals={'b': True}),
    )
)


@FUZZ
@given(changed(STATE))
def test_state_document(document: Any) -> None:
    only_ours(lambda: HarnessState.model_validate(document))


@FUZZ
@given(damaged(json.dumps(STATE).encode()))
def test_state_text(text: bytes) -> None:
    only_ours(lambda: HarnessState.model_validate_json(text))


@FUZZ
@example({**RESUME, 'calls': {'a': '\ud800'}})
@given(changed(RESUME))
def test_document_of_answers(document: Any) -> None:
    only_ours(lambda: read_resume(document))


@FUZZ
@given(damaged(encode_message(asks('hello')).body) | st.binary(max_size=20))
def test_message_body(body: bytes) -> None:
    only_ours(lambda: decode_message(body))


PLACE = TemporaryDirectory()
"""For blobs, which no test here changes."""


async def stored_externally() -> tuple[MediaStore, bytes]:
    media = DiskMediaStore(Path(PLACE.name, 'parts'))
    body = encode_message(asks('large ' * 400)).body
    return media, await Externalizer(media, 100).store(body)


MEDIA, EXTERNAL = asyncio.run(stored_externally())


@FUZZ
@given(damaged(EXTERNAL))
def test_body_with_parts_elsewhere(stored: bytes) -> None:
    only_ours(lambda: asyncio.run(Externalizer(MEDIA, 100).restore(stored, 'run')))


@FUZZ
@given(damaged(outcomes._adapter().dump_json(outcomes.result('tool_return', result={'a': [1]}))))  # pyright: ignore
def test_value_of_a_ledger_entry(value: bytes) -> None:
    """What is in the ledger was written by this package; a damaged entry is told, and not by chance of its reader."""
    with suppress(HarnessError, ValueError):
        outcomes.load_result(value)


@FUZZ
@given(JSON)
def test_marker_of_another_library(node: Any) -> None:
    async def no_blob(digest: str) -> bytes | None:
        return None

    only_ours(lambda: asyncio.run(restore(node, no_blob, run_id='run-1')))  # pyright: ignore[reportArgumentType]


@FUZZ
@given(JSON)
def test_carrier(value: Any) -> None:
    if is_carrier(value):
        only_ours(lambda: unpack(value))


# --- payloads ---

STORAGE = PayloadStorage(DiskMediaStore(Path(PLACE.name, 'sealed')), keys=KeyRing.of(Key.generate('k1')))
PLAIN = PayloadStorage(DiskMediaStore(Path(PLACE.name, 'plain')))
LARGE = Payload(metadata={'encoding': b'json/plain'}, data=b'"' + b'text ' * 2_000 + b'"')


def encoded(storage: PayloadStorage) -> Payload:
    return asyncio.run(storage.codec.encode([LARGE]))[0]


@pytest.mark.parametrize('storage', [STORAGE, PLAIN], ids=['encrypted', 'plain'])
@FUZZ
@given(data=st.data())
def test_payload(storage: PayloadStorage, data: st.DataObject) -> None:
    payload = encoded(storage)
    payload.data = data.draw(damaged(payload.data))
    name = data.draw(st.sampled_from([*sorted(payload.metadata), 'encoding']))
    if data.draw(st.booleans()):
        payload.metadata[name] = data.draw(damaged(payload.metadata[name]))
    only_ours(lambda: asyncio.run(storage.codec.decode([payload])))


# --- files ---


async def written(folder: Path) -> None:
    store = FileStepStore(folder, media_threshold_bytes=100)
    messages = [asks('hello'), says('large ' * 100)]
    await store.commit([a_run(), an_event(), an_end(value=b'"done"'), a_snapshot(messages=messages), a_response()])
    await store.aclose()


async def read_all(store: FileStepStore) -> None:
    reads: list[Callable[[], Awaitable[Any]]] = [
        lambda: store.get_run(run_id='run-1'),
        lambda: store.list_runs(),
        lambda: store.list_events(run_id='run-1'),
        lambda: store.list_tool_effects(run_id='run-1'),
        lambda: store.list_snapshots(run_id='run-1', include_interrupted=True),
        lambda: store.get_model_response(run_id='run-1', key='request-1'),
        lambda: store.commit([an_event(idempotency_key='later')]),
    ]
    for read in reads:
        with suppress(HarnessError):
            await read()
    await store.aclose()


@FEWER
@given(data=st.data())
def test_file_of_a_store(data: st.DataObject) -> None:
    with TemporaryDirectory() as place:
        folder = Path(place, 'runs')
        asyncio.run(written(folder))
        files = sorted(path for path in folder.rglob('*') if path.is_file())
        victim = data.draw(st.sampled_from(files))
        victim.write_bytes(data.draw(damaged(victim.read_bytes())))
        asyncio.run(read_all(FileStepStore(folder)))


PEER_RUN = {
    'run.json': {'run_id': 'run-1', 'started_at': '2026-01-01T00:00:00Z', 'agent_name': 'a', 'metadata': {}},
    'events.jsonl': {'run_id': 'run-1', 'kind': 'run_started', 'step_index': 0, 'timestamp': '2026-01-01T00:00:00Z'},
    'tool_effects.jsonl': {
        'run_id': 'run-1',
        'tool_call_id': 'c',
        'tool_name': 't',
        'status': 'started',
        'started_at': '2026-01-01T00:00:00Z',
    },
    'snapshots/1.json': {
        'run_id': 'run-1',
        'step_index': 1,
        'messages': [],
        'timestamp': '2026-01-01T00:00:00Z',
        'state': 'complete',
    },
}


@FEWER
@given(data=st.data())
def test_source_of_an_import(data: st.DataObject) -> None:
    with TemporaryDirectory() as place:
        run = Path(place, 'run-1')
        for name, content in PEER_RUN.items():
            (run / name).parent.mkdir(parents=True, exist_ok=True)
            (run / name).write_text(json.dumps(content) + '\n')
        victim = run / data.draw(st.sampled_from(sorted(PEER_RUN)))
        if data.draw(st.booleans()):
            victim.write_bytes(data.draw(damaged(victim.read_bytes())))
        else:
            victim.write_text(json.dumps(data.draw(changed(PEER_RUN[str(victim.relative_to(run))]))) + '\n')
        target = InMemoryStepStore()
        report = asyncio.run(import_runs(FileSource(Path(place)), target))
        # A run is imported wholly, or left out and told of.
        assert len(asyncio.run(target.list_runs())) + len(report.failures) <= 1
