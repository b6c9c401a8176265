from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelRequest, ToolReturnPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.test import TestModel

from harness_temporal import Memory, StepPersistence
from harness_temporal.errors import ConfigurationError, InvalidNotebookError, StoreUnavailableError
from harness_temporal.memory import MAIN, Append, Glance, InMemoryMemoryStore, Note, Notebook
from harness_temporal.memory.toolset import READ_CHARACTERS
from harness_temporal.step_persistence import InMemoryStepStore
from harness_temporal.tools import is_recovery_retryable
from tests.memory.models import Caller, blocks_in

Boundaries = Literal['inline', 'dedicated']
BOTH = pytest.mark.parametrize('boundaries', ['inline', 'dedicated'])


class AwayStore(InMemoryMemoryStore):
    """Cannot be read."""

    async def _glance(self, notebook: Notebook, name: str, max_bytes: int, max_names: int) -> Glance:
        raise StoreUnavailableError('AwayStore', 'it is away.')


def returned(messages: Sequence[ModelMessage]) -> list[Any]:
    return [
        part.content
        for message in messages
        if isinstance(message, ModelRequest)
        for part in message.parts
        if isinstance(part, ToolReturnPart)
    ]


async def call(memory: Memory[None], *calls: tuple[str, dict[str, Any]]) -> list[Any]:
    """Let a model call tools, and return what they gave it."""
    result = await Agent(Caller(*calls).model, name='librarian', capabilities=[memory]).run('go')
    return returned(result.all_messages())


@BOTH
@pytest.mark.parametrize('stream', [False, True], ids=['run', 'stream'])
async def test_each_request_sees_the_notebook_and_the_history_does_not(boundaries: Boundaries, stream: bool) -> None:
    caller = Caller(('write_memory', {'text': 'likes tea'}), ('write_memory', {'text': 'today', 'note': 'plan'}))
    memory, runs = Memory[None](boundaries=boundaries), InMemoryStepStore()
    agent = Agent(
        caller.model, name='librarian', capabilities=[StepPersistence(store=runs, capture_frontier=True), memory]
    )
    if stream:
        async with agent.run_stream('go') as streamed:
            await streamed.get_output()
        history = streamed.all_messages()
    else:
        history = (await agent.run('go')).all_messages()

    assert [len(blocks) for blocks in caller.blocks] == [0, 1, 1]
    assert 'likes tea\n</memory>' in caller.blocks[1][0]
    assert 'likes tea\n--- other notes, for `read_memory`: plan ---\n</memory>' in caller.blocks[2][0]
    assert [blocks_in(messages[:-1]) for messages in caller.sent] == [[], [], []], 'not in those before it'
    assert blocks_in(history) == []
    [run] = await runs.list_runs()
    snapshots = await runs.list_snapshots(run_id=run.run_id)
    assert len(snapshots) > 2
    assert [blocks_in(snapshot.messages) for snapshot in snapshots] == [[]] * len(snapshots)


async def test_a_later_run_has_what_an_earlier_one_wrote() -> None:
    store = InMemoryMemoryStore()
    await call(Memory(store=store), ('write_memory', {'text': 'likes tea'}))
    caller = Caller()
    await Agent(caller.model, name='librarian', capabilities=[Memory(store=store)]).run('go')
    assert 'likes tea' in caller.blocks[0][0]
    await Agent(caller.model, name='another', capabilities=[Memory(store=store)]).run('go')
    await Agent(caller.model, name='another', capabilities=[Memory(store=store, agent_name='librarian')]).run('go')
    assert [len(blocks) for blocks in caller.blocks] == [1, 0, 1]


@dataclass
class Deps:
    user: str


async def test_the_dependencies_say_whose_notebook_it_is() -> None:
    store = InMemoryMemoryStore()
    caller = Caller(('write_memory', {'text': 'likes tea'}))
    memory = Memory[Deps](store=store, namespace=lambda deps: f'user {deps.user}')
    agent = Agent(caller.model, name='librarian', deps_type=Deps, capabilities=[memory])
    await agent.run('go', deps=Deps('Ann'))
    assert await store.read(Notebook('librarian', 'user Ann'), MAIN) == Note(MAIN, 'likes tea')
    caller.calls = ()
    for user in ('Ben', 'ann'):
        await agent.run('go', deps=Deps(user))
        assert caller.blocks[-1] == []
    await agent.run('go', deps=Deps('Ann'))
    assert len(caller.blocks[-1]) == 1


@BOTH
@pytest.mark.parametrize('user', ['', None])
async def test_a_run_without_a_namespace_does_not_get_another_ones(boundaries: Boundaries, user: Any) -> None:
    memory = Memory[Deps](namespace=lambda deps: deps.user, on_injection_error='ignore', boundaries=boundaries)
    agent = Agent(Caller().model, name='librarian', deps_type=Deps, capabilities=[memory])
    with pytest.raises(InvalidNotebookError):
        await agent.run('go', deps=Deps(user))


async def test_an_agent_without_a_name_needs_one_for_its_memory() -> None:
    capabilities: list[Any] = [Memory()]
    with pytest.raises(ConfigurationError, match='agent_name'):
        await [Agent(Caller().model, capabilities=capabilities)][0].run('go', infer_name=False)


async def test_no_tool_lets_the_model_choose_a_notebook() -> None:
    model = TestModel(call_tools=[])
    await Agent(model, name='librarian', capabilities=[Memory()]).run('go')
    assert model.last_model_request_parameters is not None
    tools = {tool.name: tool for tool in model.last_model_request_parameters.function_tools}
    assert {name: set(tool.parameters_json_schema['properties']) for name, tool in tools.items()} == {
        'write_memory': {'text', 'note', 'old', 'revision'},
        'read_memory': {'note', 'start'},
        'delete_memory': {'note', 'revision'},
        'search_memory': {'query'},
    }
    assert all(is_recovery_retryable(tool) and tool.description for tool in tools.values())
    described = tools['write_memory'].parameters_json_schema['properties']
    assert all('description' in schema for schema in described.values())


async def test_the_tools_write_read_search_and_delete() -> None:
    revisions = [Note('plan', text).revision for text in ('Tea at four', 'Tea at five')]
    assert await call(
        Memory(),
        ('write_memory', {'text': 'Tea at four', 'note': 'plan'}),
        ('write_memory', {'text': 'five', 'old': 'four', 'note': 'plan', 'revision': revisions[0]}),
        ('read_memory', {'note': 'plan'}),
        ('search_memory', {'query': ' TEA '}),
        ('delete_memory', {'note': 'plan', 'revision': revisions[1]}),
        ('search_memory', {'query': 'tea'}),
    ) == [
        {'note': 'plan', 'revision': revisions[0]},
        {'note': 'plan', 'revision': revisions[1]},
        {'note': 'plan', 'revision': revisions[1], 'text': 'Tea at five'},
        {'hits': [{'note': 'plan', 'line': 1, 'excerpt': 'Tea at five'}], 'complete': True},
        {'note': 'plan', 'deleted': True},
        {'hits': [], 'complete': True},
    ]


async def test_a_long_note_is_read_in_parts() -> None:
    store = InMemoryMemoryStore()
    text = ''.join(f'{number:07}\n' for number in range(4500))
    await store.edit(Notebook('librarian', 'default'), MAIN, Append(text), key='1')
    starts = [0, READ_CHARACTERS, 2 * READ_CHARACTERS]
    given = await call(Memory(store=store), *(('read_memory', {'start': start}) for start in starts))
    assert ''.join(part['text'] for part in given) == text
    assert [part.get('next_start') for part in given] == [*starts[1:], None]


@pytest.mark.parametrize(
    ('tool', 'arguments', 'message'),
    [
        ('write_memory', {'text': 'x', 'note': '../x'}, 'a name is 1 to 64'),
        ('write_memory', {'text': 'x', 'old': 'absent'}, 'not in it'),
        ('write_memory', {'text': 'x', 'revision': 'older'}, 'it was changed since'),
        ('write_memory', {'text': 'x' * 140_000}, 'at most 131072 are allowed'),
        ('write_memory', {'text': 'a\0b'}, 'U+0000'),
        ('read_memory', {'note': 'absent'}, 'there is no such note'),
        ('delete_memory', {'note': 'absent'}, 'there is no such note'),
        ('search_memory', {'query': ' '}, '1 to 200 characters'),
        ('search_memory', {'query': 'x' * 201}, '1 to 200 characters'),
    ],
    ids=['name', 'passage', 'revision', 'size', 'text', 'read', 'delete', 'empty-query', 'long-query'],
)
async def test_what_is_wrong_with_a_call_is_told_to_the_model(
    tool: str, arguments: dict[str, Any], message: str
) -> None:
    store = InMemoryMemoryStore()
    notebook = Notebook('librarian', 'default')
    await store.edit(notebook, MAIN, Append('kept'), key='1')
    [answer] = await call(Memory(store=store), (tool, arguments))
    assert message in answer
    assert [page async for page in store.pages(notebook)] == [[Note(MAIN, 'kept')]]


@BOTH
async def test_a_store_that_is_away_fails_the_request_or_is_done_without(
    boundaries: Boundaries, caplog: pytest.LogCaptureFixture
) -> None:
    caller = Caller()
    memory = Memory[None](store=AwayStore(), boundaries=boundaries)
    with pytest.raises(StoreUnavailableError):
        await Agent(caller.model, name='librarian', capabilities=[memory]).run('go')
    assert caller.sent == []
    assert caplog.messages == []

    memory = Memory[None](store=AwayStore(), on_injection_error='ignore', boundaries=boundaries)
    await Agent(caller.model, name='librarian', capabilities=[memory]).run('go')
    assert caller.blocks == [[]]
    assert caplog.messages == ["A request is sent without the memory of 'librarian': AwayStore: it is away."]


@BOTH
async def test_an_agent_may_have_several_memories(boundaries: Boundaries) -> None:
    store = InMemoryMemoryStore()
    own = Memory[None](store=store, boundaries=boundaries)
    team = Memory[None](
        store=store, agent_name='team', id='team', tool_prefix='team_', max_tokens=400, boundaries=boundaries
    )
    caller = Caller(('write_memory', {'text': 'mine'}), ('team_write_memory', {'text': 'ours'}))
    await Agent(caller.model, name='librarian', capabilities=[own, team]).run('go')
    blocks = caller.blocks[-1]
    assert sorted('mine' in block for block in blocks) == [False, True]
    assert sorted(block.partition('>')[0] for block in blocks) == ['<memory id="memory"', '<memory id="team"']
    assert await store.read(Notebook('team', 'default'), MAIN) == Note(MAIN, 'ours')


def test_two_memories_under_one_id_are_refused() -> None:
    with pytest.raises(ConfigurationError, match='tool_prefix'):
        Agent(Caller().model, name='librarian', capabilities=[Memory(), Memory()])


@pytest.mark.parametrize(
    'settings', [{'max_tokens': 10}, {'max_lines': 1}, {'id': None}, {'id': 'a"b'}, {'tool_prefix': 'a b'}], ids=str
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        Memory(**settings)


@pytest.mark.parametrize('is_async', [False, True], ids=['sync', 'async'])
async def test_a_ranking_takes_the_place_of_the_literal_search(is_async: bool) -> None:
    asked: list[tuple[str, list[str]]] = []

    def rank(query: str, notes: Sequence[Note]) -> list[str]:
        asked.append((query, [note.name for note in notes]))
        return ['cats', 'absent', 'dogs']

    async def rank_later(query: str, notes: Sequence[Note]) -> list[str]:
        return rank(query, notes)

    given = await call(
        Memory(rank=rank_later if is_async else rank),
        *(('write_memory', {'text': f'about {name}\nmore', 'note': name}) for name in ('birds', 'cats', 'dogs')),
        ('search_memory', {'query': 'pets'}),
    )
    assert asked == [('pets', ['birds', 'cats', 'dogs'])]
    assert given[-1] == {
        'hits': [{'note': name, 'line': 1, 'excerpt': f'about {name}\nmore'} for name in ('cats', 'dogs')],
        'complete': True,
    }


async def test_calls_with_the_same_id_in_two_steps_are_two_calls() -> None:
    memory, model = Memory[None](), Caller(*[('write_memory', {'text': 'x'})] * 2)

    def same_id(messages: list[ModelMessage], info: Any) -> Any:
        answer = model._answer(messages, info)
        for part in answer.tool_calls:
            part.tool_call_id = 'call'
        return answer

    await Agent(FunctionModel(same_id), name='librarian', capabilities=[memory]).run('go')
    assert await memory.store.read(Notebook('librarian', 'default'), MAIN) == Note(MAIN, 'x\nx')
