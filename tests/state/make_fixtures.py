"""Write the documents of this release: `python -m tests.state.make_fixtures`. Never overwrites one.

What a release wrote must load in every later one, so a document is added when the format gains something, and never
changed. `later_writer.json` is written by hand: it has what this release does not know.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from pydantic_ai.messages import BinaryContent, ModelRequest, ThinkingPart, UserPromptPart

from harness_temporal.state import DeferredToolResume, HarnessState
from tests.state.support import Bench, call, calls, response, returned, thread, user

FOLDER = Path(__file__).parent / 'fixtures'


async def documents() -> dict[str, Any]:
    first = await Bench(calls('ask', 'outside', 'safe')).run('go', previous_state=thread())
    results = first.deferred.build_results(approve_all=True, calls={'outside': {'a': 1}})
    resume = DeferredToolResume(first.deferred, results, recovery=True)
    rich = thread(
        ModelRequest(parts=[UserPromptPart(['see', BinaryContent(b'\xff\x00', media_type='image/png')])]),
        response(ThinkingPart('hmm', signature='sig'), 'so ', call('plain', x=2**70), state='interrupted'),
        returned('plain', content={'kind': 'binary', 'nul \x00': ['\ud800', None, 1.5]}, state='interrupted'),
        agent_context_state={'entries': {'acme.counter': {'version': '1', 'data': {'value': 2}}}},
        environment_states={'box': {'provider_key': 'local', 'state_version': '1.0', 'state': {'cwd': '/'}}},
    )
    completed = await Bench(calls('plain'), 'done', system_prompt='Be brief.').run('go', previous_state=thread())
    return {
        'new': thread(),
        'completed': completed.state,
        'suspended': first.state,
        'rich': rich,
        'pending_calls': thread(user(), response(*calls('plain', 'safe'))),
        'deferred_resume': resume,
    }


def main() -> None:
    for name, value in asyncio.run(documents()).items():
        path = FOLDER / f'{name}.json'
        if path.exists():
            continue
        text = (
            value.model_dump_json()
            if isinstance(value, HarnessState)
            else TypeAdapter(DeferredToolResume).dump_json(value).decode()
        )
        path.write_text(json.dumps(json.loads(text), indent=1) + '\n')


if __name__ == '__main__':
    main()
