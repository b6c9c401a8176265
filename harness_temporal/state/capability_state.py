"""The capability namespaces of a running agent (state-and-resume seed, "Capability State")."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Self, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticSerializationError, from_json

from harness_temporal.errors import StateError
from harness_temporal.state.json_values import canonical_json, holds_non_finite
from harness_temporal.state.namespaces import NAMESPACE_LIMITS, AgentContextState, CapabilityEntry, is_blank

StateModelT = TypeVar('StateModelT', bound=BaseModel)


@dataclass(frozen=True)
class StateWrite:
    """One write, so that it can be sent back from wherever the capability or tool ran.

    The field names are in Temporal histories and effect ledgers: never rename one.
    """

    namespace: str
    version: str
    data: str
    """JSON text."""

    def dump(self) -> dict[str, str]:
        """Return the write as a plain mapping."""
        return asdict(self)

    @classmethod
    def load(cls, data: Mapping[str, str]) -> Self:
        """Read what `dump` gave."""
        return cls(**data)


class CapabilityState:
    """What capabilities and tools of one run read and write.

    A namespace belongs to one capability and is replaced as a whole. Values are copied on the way in and out, so what
    a caller does to them afterwards changes nothing here.

    In a Temporal workflow a tool that runs in an activity, or as a child workflow, works on a copy: it reads what was
    there when its call was scheduled, and what it wrote is written to the run's state when its result reaches the
    workflow, after a `ModelRetry` and the like too. So tools that run at the same time do not see each other's writes,
    and of two that write one namespace, the one whose result comes last wins. What a tool wrote before it raised an
    error is dropped with its attempt. Every call takes all namespaces along: keep them small.
    """

    def __init__(self, state: AgentContextState) -> None:
        self._entries = {
            key: (entry.version, canonical_json(entry.data).decode()) for key, entry in state.entries.items()
        }
        self._writes: list[StateWrite] = []
        self._snapshot: AgentContextState | None = state

    async def read(self, namespace: str, model: type[StateModelT], *, version: str) -> StateModelT | None:
        """Return what the namespace holds, or `None` if nothing was written yet.

        Raises:
            StateError: It was written in another version (`capability_state_version_unsupported`, with both), is not
                what `model` takes (`capability_state_invalid`), or `namespace` or `version` is blank.
        """
        _check_names(namespace, version)
        entry = self._entries.get(namespace)
        if entry is None:
            return None
        if entry[0] != version:
            raise StateError(
                'capability_state_version_unsupported',
                f'The state of {namespace!r} has version {entry[0]!r}, and version {version!r} was asked for.',
                {'capability_id': namespace, 'expected_version': version, 'actual_version': entry[0]},
            )
        try:
            return model.model_validate_json(entry[1])
        except ValidationError as error:
            raise StateError(
                'capability_state_invalid',
                f'The state of {namespace!r} is not a {model.__name__}.',
                {'capability_id': namespace},
            ) from error

    async def write(self, namespace: str, value: BaseModel, *, version: str) -> None:
        """Replace what the namespace holds. The last writer wins, also over another version.

        Raises:
            StateError: The value is no model, has no finite JSON form or is too large (`capability_state_invalid`), or
                `namespace` or `version` is blank. Nothing was written then.
        """
        _check_names(namespace, version)
        try:
            if not isinstance(value, BaseModel):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise ValueError(f'a {type(value).__name__} is not a Pydantic model.')
            if holds_non_finite(value.model_dump()):  # which `mode='json'` turns into null in an untyped field
                raise ValueError('NaN and infinities are not JSON.')
            data = value.model_dump(mode='json', warnings='error')
            encoded = canonical_json(data, NAMESPACE_LIMITS).decode()
        except (ValueError, PydanticSerializationError) as error:
            raise _not_kept(namespace, error) from error
        self._put(StateWrite(namespace, version, encoded))

    @property
    def writes(self) -> tuple[StateWrite, ...]:
        """What changed since the run began, or since the tool call was sent to where it runs, in order."""
        return tuple(self._writes)

    def apply(self, writes: Iterable[StateWrite]) -> None:
        """Write what another instance wrote, in its order.

        Raises:
            StateError: A write has no name or version, or its data is no JSON text; those before it are kept.
        """
        for write in writes:
            _check_names(write.namespace, write.version)
            try:
                from_json(write.data, allow_inf_nan=False)
            except ValueError as error:
                raise _not_kept(write.namespace, error) from error
            self._put(write)

    def snapshot(self) -> AgentContextState:
        """Return every namespace as it is now; the same object until something changes."""
        if self._snapshot is None:
            self._snapshot = AgentContextState(
                entries={
                    key: CapabilityEntry(version=version, data=from_json(data))
                    for key, (version, data) in self._entries.items()
                }
            )
        return self._snapshot

    def dump(self) -> list[dict[str, str]]:
        """Return every namespace as it is now, in the form of writes: cheap, so that each tool call can carry it."""
        return [StateWrite(key, version, data).dump() for key, (version, data) in self._entries.items()]

    @classmethod
    def load(cls, dumped: Iterable[Mapping[str, str]]) -> Self:
        """Read what `dump` gave. Nothing of it counts as a write."""
        loaded = cls(AgentContextState())
        writes = map(StateWrite.load, dumped)
        loaded._entries = {write.namespace: (write.version, write.data) for write in writes}
        loaded._snapshot = None
        return loaded

    def _put(self, write: StateWrite) -> None:
        entry = (write.version, write.data)
        if self._entries.get(write.namespace) != entry:
            self._entries[write.namespace] = entry
            self._writes.append(write)
            self._snapshot = None


def _not_kept(namespace: str, error: Exception) -> StateError:
    return StateError(
        'capability_state_invalid',
        f'The state of {namespace!r} cannot be kept: {error}',
        {'capability_id': namespace},
    )


def _check_names(namespace: str, version: str) -> None:
    if is_blank(namespace):
        raise StateError('capability_state_id_invalid', 'A namespace needs a name.')
    if is_blank(version):
        raise StateError(
            'capability_state_version_invalid',
            f'The state of {namespace!r} needs a version.',
            {'capability_id': namespace},
        )
