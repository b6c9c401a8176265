"""What travels with a tool call's result and is no part of it: recorded with it, taken off where it arrives.

The carrier is a `ToolReturn` whose metadata hold what is carried. So the tool's value crosses as Pydantic AI's own
values do, files included, and whoever does not know carriers still sees the value. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from pydantic_ai.messages import ToolReturn

from harness_temporal.errors import StateError

CARRIED_KEY = 'harness_temporal.carried'
"""Key in the metadata of a carrier. It is in histories and ledgers for ever, like the field names below it."""
CARRIED_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Carried:
    """A carrier's content."""

    value: Any = None
    """What the tool returned, if it returned."""
    signal: Mapping[str, Any] | None = None
    """If the tool raised a signal (`ModelRetry`, `ApprovalRequired`, …), the fields of Pydantic AI's record of it."""
    state_writes: Sequence[Mapping[str, str]] = ()
    """`StateWrite`s to the run's capability state, in order."""


def pack(carried: Carried) -> ToolReturn[Any]:
    """Make the carrier."""
    content: dict[str, Any] = {'version': CARRIED_VERSION}
    if carried.signal is not None:
        content['signal'] = carried.signal
    if carried.state_writes:
        content['state_writes'] = list(carried.state_writes)
    value: Any = carried.value
    if not isinstance(value, ToolReturn):
        return ToolReturn(value, metadata={CARRIED_KEY: content})
    given = cast(ToolReturn[Any], value)
    return replace(given, metadata={CARRIED_KEY: {**content, 'metadata': given.metadata}})


def is_carrier(value: object) -> bool:
    """Whether a value is a carrier, or looks like one."""
    if not isinstance(value, ToolReturn):
        return False
    metadata: Any = cast(ToolReturn[Any], value).metadata
    return isinstance(metadata, dict) and CARRIED_KEY in metadata


def unpack(carrier: ToolReturn[Any]) -> Carried:
    """Read a carrier.

    Raises:
        StateError: It was made by a release that this one does not know (`carrier_version_unsupported`).
    """
    content: Mapping[str, Any] = carrier.metadata[CARRIED_KEY]
    if content['version'] != CARRIED_VERSION:
        raise StateError(
            'carrier_version_unsupported',
            f'The result of a tool call carries state in version {content["version"]!r}, and this release knows '
            f'version {CARRIED_VERSION!r}: run it on workers of the release that made it, or a later one.',
        )
    structured = 'metadata' in content
    return Carried(
        value=replace(carrier, metadata=content['metadata']) if structured else carrier.return_value,
        signal=content.get('signal'),
        state_writes=content.get('state_writes', ()),
    )
