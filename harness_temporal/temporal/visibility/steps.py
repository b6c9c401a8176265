"""The latest steps of a workflow's agents as Markdown, for the details of the workflow in the Temporal UI.

The details are in no history: the worker answers the UI's question with them, from what replay has built.
"""

from __future__ import annotations

from collections import deque
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final

from temporalio import workflow
from temporalio.worker import StartActivityInput

from harness_temporal.step_persistence.effects import UNKNOWN_OUTCOME_METADATA_KEY, tells_unknown
from harness_temporal.temporal.activity_names import MODEL_REQUESTS, TOOL_CALL
from harness_temporal.temporal.visibility.summaries import (
    call_text,
    code,
    model_summary,
    operation_summary,
    tool_summary,
)

SHOWN: Final = 20
"""How many of the latest activities are shown."""
_CELL: Final = 300

_TOLD: Final = {
    'approval_required': 'asked for approval',
    'call_deferred': 'asked for a result from outside',
    'model_retry': 'asked to be called again',
    'validation_error': 'asked to be called again',
    'tool_failed': 'told the model that it failed',
    'run_cancelled': 'told the model that it failed',
}


@dataclass
class Row:
    """One activity of an agent."""

    step: int
    what: str
    """As it stands in a cell."""
    state: str = 'running'


class StepTable:
    """The activities of the agents of one workflow run, below what the workflow says of itself."""

    def __init__(self) -> None:
        self._heading = ''
        self._rows = deque[Row](maxlen=SHOWN)
        self._runs: dict[str, None] = {}
        self._unknown = 0
        self._shown = ''

    def head(self, heading: str) -> None:
        """Put Markdown above the table, instead of what was there."""
        self._heading = heading
        self._show()

    def add(self, input: StartActivityInput, run_id: str | None) -> Row | None:
        """Add an activity, if it is a model request or a tool call, and put its summary on it."""
        params: Any = input.args[0] if input.args else None
        context: dict[str, Any] = getattr(params, 'serialized_run_context', None) or {}
        step: int = context.get('run_step', 0)
        if input.activity.endswith(TOOL_CALL):
            call = call_text(params.name, params.tool_args)
            row = Row(step, call_cell(call))
            input.summary = tool_summary(step, call)
        elif input.activity.endswith(MODEL_REQUESTS):
            row = Row(step, 'ask the model')
            input.summary = model_summary(step)
        else:
            input.summary = operation_summary(input.activity) or input.summary
            return None
        if run_id is not None:
            self._runs[run_id] = None
        self._rows.append(row)
        self._show()
        return row

    def end(self, row: Row, handle: workflow.ActivityHandle[Any]) -> None:
        """Say how an activity ended."""
        if handle.cancelled():
            row.state = 'cancelled'
        elif (error := handle.exception()) is not None:
            row.state = f'failed: {type(error.__cause__ or error).__name__}'
        else:
            row.state = self._told(handle.result())
        self._show()

    def _told(self, result: Any) -> str:
        kind = getattr(result, 'kind', None)
        metadata: Any = getattr(result, 'metadata', None) or {}
        unknown = (kind == 'tool_failed' and tells_unknown(result.message)) or (
            kind == 'call_deferred' and UNKNOWN_OUTCOME_METADATA_KEY in metadata
        )
        if unknown:
            self._unknown += 1
            return '**outcome unknown**: its worker died; look at the outside system'
        return _TOLD.get(kind or '', 'done')

    def _show(self) -> None:
        # What the workflow's code has set as the details itself stays.
        if workflow.get_current_details() != self._shown:
            return
        self._shown = '\n\n'.join(filter(None, (self._heading, self.markdown() if self._rows else '')))
        workflow.set_current_details(self._shown)

    def markdown(self) -> str:
        """Return the table."""
        runs = ', '.join(f'`{run_id}`' for run_id in self._runs)
        facts = [f'run {runs}'] if runs else []
        if self._unknown:
            facts.append(f'**{self._unknown} with unknown outcome**: see `harness-temporal effects list`')
        lines = [' · '.join(facts), '', '| step | | |', '| --- | --- | --- |']
        lines += [f'| {row.step} | {row.what} | {cell(row.state)} |' for row in reversed(self._rows)]
        return '\n'.join(lines)


step_table: ContextVar[StepTable | None] = ContextVar('harness_temporal.step_table', default=None)
"""The table of the workflow run. The interceptor sets it."""


def cell(text: str) -> str:
    """Return a text as it stands in a cell of a table."""
    return ' '.join(text.split()).replace('|', '\\|')[:_CELL]


def call_cell(call: str) -> str:
    """Return a call (`call_text`) as it stands in a cell: as code."""
    return code(cell(call), _CELL)
