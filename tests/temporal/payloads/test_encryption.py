"""With keys, neither the history nor the media store has plain text, and keys can be rotated under a run."""

from __future__ import annotations

from dataclasses import replace

import pytest
from temporalio.client import WorkflowFailureError, WorkflowHistory
from temporalio.exceptions import ActivityError, ApplicationError

from harness_temporal import HarnessClient
from harness_temporal.temporal.payloads import Key
from harness_temporal.temporal.payloads.stuck import payloads_in
from tests.temporal.effects import noted
from tests.temporal.payloads.workers import Setup, noise
from tests.temporal.runs import until

pytestmark = pytest.mark.temporal

OLD, NEW = Key.generate('old').dump(), Key.generate('new').dump()
SECRETS = ('TOP-SECRET', noise(3000)[:64], noise(3000)[-64:], 'page wait', '"prompt"', 'tool-return')


def texts_of(setup: Setup, history: WorkflowHistory) -> dict[str, bytes]:
    """Everything that an onlooker of the server and of the media store sees."""
    raw = b'\n'.join(payload.SerializeToString() for event in history.events for payload in payloads_in(event))
    files = [path for path in (setup.folder / 'pieces').rglob('*') if path.is_file()]
    return {
        'history': history.to_json().encode(),
        'payloads': raw,
        'store': b'\n'.join(path.read_bytes() for path in files),
    }


def key_ids(history: WorkflowHistory) -> list[str]:
    """The keys of a history's payloads, in order, each once."""
    ids = [
        payload.metadata['harness-key'].decode()
        for event in history.events
        for payload in payloads_in(event)
        if 'harness-key' in payload.metadata
    ]
    return list(dict.fromkeys(ids))


@pytest.mark.parametrize('stored', [True, False], ids=['stored', 'in-the-history'])
async def test_there_is_no_plain_text_in_the_history_or_in_the_store(setup: Setup, stored: bool) -> None:
    sealed = replace(setup, keys=OLD, stored=stored)
    (setup.folder / 'told').touch()
    async with sealed.working():
        run = await sealed.start('page wait', 'pages')
        output = (await run.result()).output
    assert output == f'TOP-SECRET-RESULT {noise(3000)} | told'
    history = await run.fetch_history()
    for place, text in texts_of(sealed, history).items():
        assert [secret for secret in SECRETS if secret.encode() in text] == [], place
    assert key_ids(history) == ['old']
    if stored:
        assert texts_of(sealed, history)['store'] != b''
    await sealed.replay(history)


async def test_what_the_ui_shows_of_the_start_is_encrypted_and_its_reader_has_it(setup: Setup) -> None:
    client = await replace(setup, keys=OLD).client()
    harness = HarnessClient(client, agent='reader', task_queue='nobodys')
    run = await harness.start('TOP-SECRET', conversation_id='TOP-SECRET-TALK')
    for place, text in texts_of(setup, await run.fetch_history()).items():
        assert b'TOP-SECRET' not in text, place
    described = await run.describe()
    await run.terminate()
    assert b'TOP-SECRET' not in described.raw_description.SerializeToString()
    assert await described.static_summary() == 'reader: `TOP-SECRET`'
    assert await described.static_details() == 'agent `reader` · conversation `TOP-SECRET-TALK`\n\n`TOP-SECRET`'


async def test_the_message_of_an_error_is_encrypted_and_its_reader_has_it(setup: Setup) -> None:
    sealed = replace(setup, keys=OLD)
    async with sealed.working():
        run = await sealed.start('fail', 'fails')
        with pytest.raises(WorkflowFailureError) as raised:
            await run.result()
    assert isinstance(raised.value.cause, ActivityError)
    assert isinstance(raised.value.cause.cause, ApplicationError)
    assert raised.value.cause.cause.message == 'TOP-SECRET-REASON'
    for place, text in texts_of(sealed, await run.fetch_history()).items():
        assert b'TOP-SECRET' not in text, place


async def test_without_keys_the_plain_text_is_there(setup: Setup) -> None:
    """What the test above looks for would be found."""
    (setup.folder / 'told').touch()
    async with setup.working():
        run = await setup.start('page wait', 'pages')
        await run.result()
    texts = texts_of(setup, await run.fetch_history())
    assert all(secret.encode() in texts['store'] + texts['payloads'] for secret in SECRETS)


async def test_a_key_is_rotated_in_the_middle_of_a_run(setup: Setup) -> None:
    before, after = replace(setup, keys=OLD), replace(setup, keys=f'{NEW} {OLD}')
    async with before.working():
        run = await before.start('page wait page', 'pages')
        await until(lambda: bool(noted(setup.folder, 'waiting')))
    (setup.folder / 'told').touch()
    async with after.working():
        await until_completed(after, run.id)
    client = await after.client()
    handle = client.get_workflow_handle(run.id)
    ended = await handle.result()
    result = f'TOP-SECRET-RESULT {noise(3000)}'
    assert ended['output'].startswith(result)
    assert ended['output'].endswith(result)
    history = await handle.fetch_history()
    assert key_ids(history) == ['old', 'new']
    await after.replay(history)


async def until_completed(setup: Setup, workflow_id: str) -> None:
    await (await setup.client()).get_workflow_handle(workflow_id).result()


async def test_encryption_and_storage_are_turned_on_while_a_run_is_under_way(setup: Setup) -> None:
    before, after = replace(setup, stored=False), replace(setup, keys=NEW)
    async with before.working():
        run = await before.start('page wait page', 'pages')
        await until(lambda: bool(noted(setup.folder, 'waiting')))
    (setup.folder / 'told').touch()
    async with after.working():
        await until_completed(after, run.id)
    history = await run.fetch_history()
    assert key_ids(history) == ['new']
    await after.replay(history)
