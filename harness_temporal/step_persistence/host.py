"""What a durability capability offers to `StepPersistence`, so that this layer needs to know none of them."""

from __future__ import annotations

from abc import ABC, abstractmethod

from pydantic_ai.tools import ToolDefinition


class BoundaryCarrier(ABC):
    """A durability capability whose model-request and tool-call units can carry boundary operations."""

    @property
    @abstractmethod
    def carries_boundaries(self) -> bool:
        """Whether this code runs in a workflow whose activities carry boundaries."""

    @property
    @abstractmethod
    def is_replaying(self) -> bool:
        """Whether the workflow is doing again what it did before, perhaps on another worker."""

    @abstractmethod
    def next_registration_id(self) -> str:
        """Return an id for one agent run of this workflow: unlike any other's, and the same in every replay."""

    @abstractmethod
    def host_metadata(self) -> dict[str, str]:
        """Return what leads from a run's record to the workflow that it runs in."""

    @abstractmethod
    def runs_in_workflow(self, tool_def: ToolDefinition) -> bool:
        """Whether the tool's body runs in workflow code, where no activity can carry its boundaries."""
