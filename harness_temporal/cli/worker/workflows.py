"""The workflows that a worker runs: its own, and further ones that are named."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from temporalio.workflow import _Definition  # pyright: ignore[reportPrivateUsage] - nothing else tells a class's name

from harness_temporal.errors import ConfigurationError
from harness_temporal.loading import load_attribute
from harness_temporal.temporal.agent_run_workflow import AgentRunWorkflow
from harness_temporal.temporal.threads.workflow import ThreadWorkflow

WORKFLOWS: Final[tuple[type, ...]] = (AgentRunWorkflow, ThreadWorkflow)
"""What the worker runs by itself."""


def load_workflows(paths: Sequence[str]) -> list[type]:
    """Return the worker's own workflows and those that are named, as `module:class`.

    Raises:
        ConfigurationError: A name leads to no workflow, or to one whose type's name another one has.
    """
    by_name = {_named(workflow): workflow for workflow in WORKFLOWS}
    for path in paths:
        found = load_attribute(path, type)
        name = _named(found)
        if name is None:
            raise ConfigurationError(f'{path!r} is no workflow. Decorate the class with `@workflow.defn`.')
        other = by_name.setdefault(name, found)
        if other is not found:
            raise ConfigurationError(
                f'{path!r} is a workflow named {name!r}, and so is `{other.__module__}.{other.__qualname__}`, which '
                "runs here too. Give yours another name: `@workflow.defn(name='...')`."
            )
    return list(by_name.values())


def _named(workflow: type) -> str | None:
    definition = _Definition.from_class(workflow)
    # One without a name takes all for which there is no other.
    return (definition.name or '') if definition is not None else None
