"""`runs diff`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelResponse, ToolCallPart
from rich.console import Group, RenderableType
from rich.text import Text

from harness_temporal.cli.effects.views import effect_data, effects_table
from harness_temporal.cli.opening import opened_store, required_run
from harness_temporal.cli.output import Output, table
from harness_temporal.step_persistence.inspection import RunComparison, compare_runs

_LONGEST = 200


async def diff_runs(store: str | None, left: str, right: str) -> Output:
    """Compare two runs of one store."""
    async with opened_store(store) as opened:
        for run_id in (left, right):
            await required_run(opened, run_id)
        compared = await compare_runs(opened, left, right)
    data = {
        'shared_messages': compared.shared,
        'left': {
            'run_id': left,
            'messages': ModelMessagesTypeAdapter.dump_python(list(compared.left), mode='json'),
            'tool_effects': [effect_data(effect) for effect in compared.left_effects],
        },
        'right': {
            'run_id': right,
            'messages': ModelMessagesTypeAdapter.dump_python(list(compared.right), mode='json'),
            'tool_effects': [effect_data(effect) for effect in compared.right_effects],
        },
    }
    return Output(data, _shown(left, right, compared))


def _shown(left: str, right: str, compared: RunComparison) -> RenderableType:
    parts: list[RenderableType] = [Text(f'The first {compared.shared} messages say the same.')]
    rows = zip_longest(map(_brief, compared.left), map(_brief, compared.right), fillvalue='')
    if compared.left or compared.right:
        parts.append(table((left, right), rows))
    for run_id, effects in ((left, compared.left_effects), (right, compared.right_effects)):
        if effects:
            parts += [Text(f'\ntool calls of {run_id} alone', style='bold'), effects_table(effects)]
    return Group(*parts)


def _brief(message: ModelMessage) -> str:
    return ' '.join(_brief_parts(message))[:_LONGEST]


def _brief_parts(message: ModelMessage) -> Sequence[str]:
    who = 'model:' if isinstance(message, ModelResponse) else 'to the model:'
    said = [
        f'{part.tool_name}({part.args_as_json_str()})'
        if isinstance(part, ToolCallPart)
        else str(getattr(part, 'content', part.part_kind))
        for part in message.parts
    ]
    return who, *said
