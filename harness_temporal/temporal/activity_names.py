"""How the names of the activities and child workflows end in which Pydantic AI asks models and runs tools."""

from __future__ import annotations

from typing import Final

MODEL_REQUESTS: Final = ('__model_request', '__model_request_stream')
"""Of the activities that ask a model."""
TOOL_CALL: Final = '__call_tool'
"""Of the activities that run a tool."""
TOOL_CALLS: Final = (TOOL_CALL, f'{TOOL_CALL}__child_workflow')
"""Of whatever runs a tool: activities and child workflows."""
