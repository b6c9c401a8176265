"""Documents that were written before must load, and give what they held."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter
from pydantic_ai.messages import BinaryContent, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.tools import ToolApproved

from harness_temporal.state import DeferredToolResume, HarnessState
from tests.state.make_fixtures import FOLDER
from tests.state.support import Bench, asked, kinds, outcomes

STATES = sorted(path for path in FOLDER.glob('*.json') if path.stem != 'deferred_resume')


def load(name: str) -> HarnessState:
    return HarnessState.model_validate_json((FOLDER / f'{name}.json').read_text())


@pytest.mark.parametrize('path', STATES, ids=lambda path: path.stem)
def test_document_loads_and_is_written_the_same_again(path: Path) -> None:
    state = HarnessState.model_validate_json(path.read_text())
    written: dict[str, Any] = json.loads(state.model_dump_json())
    assert HarnessState.model_validate(written) == state
    given = json.loads(path.read_text())
    # Messages are Pydantic AI's: it reads their older forms, and its releases add fields.
    assert len(given.pop('message_history')) == len(written.pop('message_history'))
    assert written == given


def test_documents_hold_what_they_were_written_with() -> None:
    assert {path.stem for path in STATES} == {
        *('new', 'completed', 'suspended', 'rich', 'pending_calls', 'later_writer')
    }
    assert load('new').message_history == ()
    assert kinds(load('completed').message_history) == [
        'request(system-prompt,user-prompt:go)',
        'response(call:plain)',
        'request(plain=success)',
        'response(text:done)',
    ]
    assert outcomes(load('suspended')) == {'safe': 'success: safe 1'}
    rich = load('rich')
    prompt, made, back = rich.message_history
    assert isinstance(prompt.parts[0], UserPromptPart)
    image: Any = prompt.parts[0].content[1]
    assert isinstance(image, BinaryContent)
    assert image.data == b'\xff\x00'
    call: Any = made.parts[2]
    assert isinstance(call, ToolCallPart)
    assert call.args == {'x': 2**70}
    part: Any = back.parts[0]
    assert isinstance(part, ToolReturnPart)
    assert part.content == {'kind': 'binary', 'nul \x00': ['\ud800', None, 1.5]}
    assert (made.state, back.state) == ('interrupted', 'interrupted')
    assert rich.agent_context_state.entries['acme.counter'].data == {'value': 2}
    assert rich.environment_states['box'].state == {'cwd': '/'}
    later = load('later_writer')
    assert later.message_history[1].usage.input_tokens == 3  # type: ignore[union-attr]
    assert later.fork().model_extra == {'added_later': {'anything': [1, None, {'kind': 'binary'}]}}


async def test_documents_can_be_continued() -> None:
    resume = TypeAdapter(DeferredToolResume).validate_json((FOLDER / 'deferred_resume.json').read_text())
    assert resume.recovery
    assert resume.results.approvals == {'ask': ToolApproved()}
    suspended = load('suspended')
    fresh = DeferredToolResume(resume.requests, resume.results)
    bench = Bench('done')
    result = await bench.run(previous_state=suspended, deferred_resume=fresh)
    assert (result.status, bench.ran) == ('completed', ['ask'])
    again = await Bench('done').run(previous_state=suspended, deferred_resume=resume, tool_recovery='always')
    assert asked(again)['approvals'] == ['ask']
    pending = await Bench('done').run(previous_state=load('pending_calls'))
    assert outcomes(pending.state) == {'plain': 'unknown', 'safe': 'success: safe 1'}
