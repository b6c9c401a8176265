"""What users choose, such as ids, filters and addresses, is taken or refused by name, the same by every store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from harness_temporal.errors import HarnessError, StoreCorruptionError, StoreUnavailableError
from harness_temporal.identity import decode_run_id, resolve_run_id
from harness_temporal.media.uri import digest_of
from harness_temporal.memory.notes import Notebook, check_note_name
from harness_temporal.step_persistence import FileStepStore, InMemoryStepStore, SqliteStepStore, StepStore
from harness_temporal.stores.opening import parse_location
from harness_temporal.testing.samples import a_run, a_start, an_event

FUZZ = settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
HOSTILE = ['../x', '/etc/passwd', '..', 'a\x00b', '\ud800', "' OR 1=1 --", '{"$ne": null}', '%', 'é' * 300, 'CON', '']
texts = st.sampled_from(HOSTILE) | st.text(max_size=30) | st.sampled_from(['run-1', 'RUN-1'])
Answer = tuple[str, Any]


@contextmanager
def stores() -> Iterator[list[StepStore]]:
    with TemporaryDirectory() as folder:
        yield [InMemoryStepStore(), SqliteStepStore(Path(folder, 'runs.db')), FileStepStore(Path(folder, 'runs'))]


async def answer(work: Callable[[], Awaitable[Any]]) -> Answer:
    """Return what was given, or the error that names what is wrong."""
    try:
        return 'gave', await work()
    except (StoreCorruptionError, StoreUnavailableError):
        raise  # Nothing is broken or away: a store must not say so of bad input.
    except HarnessError as error:
        return 'refused', type(error).__name__


async def answers(store: StepStore, run_id: str, other: str, number: int) -> list[Answer]:
    """Write under the ids, and ask by them."""
    found = [
        await answer(lambda: store.register_run(a_run(run_id, conversation_id=other, agent_name=other))),
        await answer(lambda: store.append_event(an_event(run_id, idempotency_key=other, error=other))),
        await answer(lambda: store.record_tool_effect(a_start(run_id, tool_call_id=other, tool_name=other))),
        await answer(lambda: store.append_event(an_event(run_id, step_index=number))),
        await answer(lambda: store.get_run(run_id=run_id)),
        await answer(lambda: store.get_run(run_id=other)),
        await answer(lambda: store.list_runs(parent_run_id=other)),
        await answer(lambda: store.list_runs(conversation_id=other)),
        await answer(lambda: store.list_events(run_id=run_id)),
        await answer(lambda: store.list_events(run_id=other, after=abs(number) % 5)),
        await answer(lambda: store.get_tool_effect(run_id=run_id, tool_call_id=other)),
        await answer(lambda: store.list_snapshots(run_id=other)),
    ]
    await store.aclose()
    return found


@FUZZ
@given(run_id=texts, other=texts, number=st.integers() | st.sampled_from([2**63, -1]))
@example(run_id='run-1', other='../run-1', number=2**63)
def test_ids_and_filters_mean_the_same_to_every_store(run_id: str, other: str, number: int) -> None:
    with stores() as opened:
        first, *others = [asyncio.run(answers(store, run_id, other, number)) for store in opened]
    for found in others:
        assert found == first


@FUZZ
@given(run_id=texts, other=texts)
def test_no_id_leaves_the_folder_of_a_store(run_id: str, other: str) -> None:
    with TemporaryDirectory() as place:
        folder = Path(place, 'inside', 'runs')
        asyncio.run(answers(FileStepStore(folder), run_id, other, 1))
        assert [path.name for path in Path(place).iterdir()] in ([], ['inside'])
        assert [path.name for path in Path(place, 'inside').glob('*')] in ([], ['runs'])


@FUZZ
@given(agent=st.none() | texts, run=st.none() | texts)
def test_run_id_of_an_agent_and_a_run(agent: str | None, run: str | None) -> None:
    with suppress(HarnessError):
        resolved = resolve_run_id(explicit=None, agent_name=agent, context_run_id=run)
        if agent is not None:
            assert decode_run_id(resolved) == (agent, run)
    decode_run_id(run or '')


@FUZZ
@given(texts | texts.map('sqlite:{}'.format) | texts.map('postgresql://{}'.format) | texts.map('mongodb://{}'.format))
@example('postgresql://[x/y')
@example('mongodb://host/%zz?schema=')
def test_address_of_a_store(text: str) -> None:
    with suppress(HarnessError):
        parse_location(text, parameters=('schema',))


@FUZZ
@given(texts | texts.map('media+sha256://{}'.format))
def test_uri_of_a_blob(uri: str) -> None:
    with suppress(HarnessError):
        digest_of(uri)


@FUZZ
@given(texts, texts)
def test_names_of_notes_and_notebooks(name: str, namespace: str) -> None:
    with suppress(HarnessError):
        check_note_name(name)
    with suppress(HarnessError):
        Notebook(namespace=namespace, agent=name)
