"""What a state holds beside its history: capability namespaces, environments, references. Pure data."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from harness_temporal.state.json_values import JsonLimits, canonical_json

_DATA = ConfigDict(frozen=True, extra='forbid')

ENVIRONMENT_LIMITS = JsonLimits(depth=32, nodes=10_000, size=1024 * 1024)
NAMESPACE_LIMITS = JsonLimits(size=1024 * 1024)
"""How much one capability may write. What a state holds already is loaded whatever its size."""


def is_blank(text: str) -> bool:
    """Whether a namespace or a version is no name at all."""
    return not text.strip()


def _not_blank(text: str) -> str:
    if is_blank(text):
        raise ValueError('must not be blank')
    return text


def _json(value: Any) -> Any:
    canonical_json(value)
    return value


def _environment_json(value: Any) -> Any:
    canonical_json(value, ENVIRONMENT_LIMITS)
    return value


def _matches(pattern: str) -> AfterValidator:
    compiled = re.compile(pattern)

    def check(text: str) -> str:
        if not compiled.fullmatch(text):
            raise ValueError(f'must match {pattern}')
        return text

    return AfterValidator(check)


class CapabilityEntry(BaseModel):
    """One capability's namespace: data that only its owner interprets, under the version that it was written with."""

    model_config = _DATA

    version: Annotated[str, AfterValidator(_not_blank)]
    data: Annotated[Any, AfterValidator(_json)]


class AgentContextState(BaseModel):
    """All capability namespaces of a state, by their ids."""

    model_config = _DATA

    entries: dict[Annotated[str, AfterValidator(_not_blank)], CapabilityEntry] = Field(
        default_factory=dict[str, CapabilityEntry]
    )


class EnvironmentState(BaseModel):
    """What an environment's provider keeps of itself. Opaque here; a fork does not take it along."""

    model_config = _DATA

    provider_key: Annotated[str, _matches(r'[a-z][a-z0-9_]{0,63}')]
    state_version: Annotated[str, _matches(r'[A-Za-z0-9][A-Za-z0-9._-]{0,63}')]
    state: Annotated[Any, AfterValidator(_environment_json)]


class ContentReference(BaseModel):
    """Content that a host keeps outside of the state."""

    model_config = _DATA

    key: Annotated[str, StringConstraints(min_length=1, max_length=1024)]
    digest: Annotated[str, _matches(r'[0-9a-f]{64}')]
    size: Annotated[int, Field(ge=0, strict=True)]
