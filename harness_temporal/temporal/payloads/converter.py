"""The payload converter that checks sizes, and knows payloads that cannot be read.

It runs in workflow code as well, where an error ends the workflow. In a codec the same error would fail the workflow's
task, again and again.
"""

from __future__ import annotations

import copy
import copyreg
from abc import ABCMeta
from collections.abc import Sequence
from functools import cache
from typing import Any, ClassVar, Self, cast

from temporalio.api.common.v1 import Payload
from temporalio.contrib.pydantic import PydanticPayloadConverter
from temporalio.converter import PayloadConverter, SerializationContext

from harness_temporal.temporal.payloads.errors import PayloadTooLargeError
from harness_temporal.temporal.payloads.owners import owner_of
from harness_temporal.temporal.payloads.unreadable import Unreadable, decoded_by_activity_worker, error_in


class _ConverterType(ABCMeta):
    """Makes classes that are pickled as how they were made: the SDK sends them to the processes of a process pool."""

    base: type[PydanticPayloadConverter]
    limit: int


def _how_it_was_made(made: _ConverterType) -> tuple[object, ...]:
    return limited_converter, (made.base, made.limit)


copyreg.pickle(_ConverterType, _how_it_was_made)  # pyright: ignore[reportArgumentType]  # a metaclass's instances


@cache
def limited_converter(base: type[PydanticPayloadConverter], limit: int) -> type[PydanticPayloadConverter]:
    """Return a payload converter class that refuses values of more than `limit` bytes in all."""
    made = _ConverterType('LimitedPayloadConverter', (_Limited, base), {'base': base, 'limit': limit})
    return cast(type[PydanticPayloadConverter], made)


def is_limited(converter: type[PayloadConverter]) -> bool:
    """Whether `limited_converter` made it."""
    return isinstance(converter, _ConverterType)


class _Limited(PydanticPayloadConverter):
    limit: ClassVar[int]
    _context: SerializationContext | None = None

    def with_context(self, context: SerializationContext) -> Self:
        converter = copy.copy(super().with_context(context))
        converter._context = context
        return converter

    def to_payloads(self, values: Sequence[Any]) -> list[Payload]:
        payloads = super().to_payloads(values)
        size = sum(payload.ByteSize() for payload in payloads)
        if size > self.limit:
            raise PayloadTooLargeError(owner_of(self._context), size, self.limit)
        return payloads

    def from_payloads(self, payloads: Sequence[Payload], type_hints: list[type] | None = None) -> list[Any]:
        error = next(filter(None, map(error_in, payloads)), None)
        if error is None:
            return super().from_payloads(payloads, type_hints)
        if decoded_by_activity_worker():
            return [Unreadable(error) for _ in payloads]
        raise error
