"""Run ids and deterministic keys. Pure: no clock, no randomness, no I/O.

The formats here are in stores and in Temporal histories for ever; `tests/unit/test_persisted_names.py` pins them.
"""

from __future__ import annotations

import hashlib
import json
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from typing import cast

from pydantic_core import PydanticSerializationError, to_json

from harness_temporal.errors import InvalidRunIdError, MissingRunIdError

RUN_ID_LIMIT = 200
"""The longest run id, in characters (step-persistence seed, "Backends")."""

_RUN_ID = re.compile(r'[A-Za-z0-9_.:-]{1,200}')


def check_run_id(run_id: str) -> str:
    """Return `run_id` if every store may hold it.

    The rule is the same on every store, so that a run can move between them: 1 to 200 of `A-Z a-z 0-9 _ . : -`,
    and not `.` or `..`.

    Raises:
        InvalidRunIdError: It may not be used; the error says why.
    """
    if len(run_id) > RUN_ID_LIMIT:
        raise InvalidRunIdError(run_id, f'it has {len(run_id)} characters, at most {RUN_ID_LIMIT} are allowed.')
    if not _RUN_ID.fullmatch(run_id) or run_id in ('.', '..'):
        raise InvalidRunIdError(
            run_id,
            'only letters, digits and `_ . : -` are allowed. Set `agent_name=` on `StepPersistence` to have a safe '
            'id derived from it.',
        )
    return run_id


def resolve_run_id(*, explicit: str | None, agent_name: str | None, context_run_id: str | None) -> str:
    """Resolve the id a run is persisted under (step-persistence seed, "run_id resolution per call").

    An explicit id is used as it is; with an agent name the pair is encoded; otherwise the context's id is used.

    Raises:
        InvalidRunIdError: The resulting id is too long or not path-safe.
        MissingRunIdError: There is neither an explicit id nor one of the context.
    """
    if explicit is not None:
        return check_run_id(explicit)
    if not context_run_id:
        raise MissingRunIdError(
            'The run has no `run_id`, and `StepPersistence` has none set. A made-up id would detach replayed writes '
            'from the run they belong to: run through `Agent.run`, or set `run_id=`.'
        )
    if agent_name is None:
        return check_run_id(context_run_id)
    return check_run_id(f'{_encode(agent_name)}.{_encode(context_run_id)}')


def decode_run_id(run_id: str) -> tuple[str, str] | None:
    """Return the agent name and context run id that a derived id encodes, or `None` for any other id."""
    agent, dot, context = run_id.partition('.')
    if not dot:
        return None
    try:
        return _decode(agent), _decode(context)
    except ValueError:
        return None


def tool_call_key(
    *,
    run_id: str,
    step_index: int,
    tool_call_id: str,
    tool_name: str,
    arguments: Mapping[str, object],
    occurrence: int = 0,
) -> str:
    """Return the key that tells one tool call of a run from every other, and stays the same across its attempts.

    A `tool_call_id` alone does not: providers repeat it or leave it empty. The arguments are part of the key so that a
    run that was reset and took another turn does not meet the outcome of a call it never made. `occurrence` counts the
    executions of one call in one step, as after an approval.
    """
    parts = [run_id, step_index, tool_call_id, tool_name, occurrence, _sorted(arguments)]
    try:
        encoded = to_json(parts, fallback=repr)
    except PydanticSerializationError:  # bytes that are no text, and lone surrogates
        encoded = json.dumps(parts, default=repr).encode()
    digest = hashlib.sha256(encoded)
    return f'call-{digest.hexdigest()[:40]}'


def event_key(kind: str, *, step_index: int, subject: str = '', attempt: int = 1, run_attempt: int = 1) -> str:
    """Return the idempotency key of an event.

    `subject` tells apart the events of one kind in one step. `run_attempt` counts the attempts of the tool call that
    the whole run is nested in.
    """
    return f'{kind}:{step_index}:{subject}:{run_attempt}.{attempt}'


def snapshot_key(*, save: int, step_index: int, state: str, attempt: int = 1, request_attempt: int = 1) -> str:
    """Return the idempotency key of a snapshot (step-persistence seed, "Durable execution").

    `save` is the number of the save within the run, which a replay counts the same way. `request_attempt` counts the
    attempts at the model request whose response the snapshot has: each may get another one, and saves its own.
    """
    key = f'snapshot:{save}:{step_index}:{state}:{attempt}'
    return key if request_attempt == 1 else f'{key}.{request_attempt}'


def _encode(text: str) -> str:
    return urlsafe_b64encode(text.encode('utf-8', 'surrogatepass')).decode('ascii').rstrip('=')


def _decode(text: str) -> str:
    decoded = urlsafe_b64decode(text + '=' * (-len(text) % 4)).decode('utf-8', 'surrogatepass')
    if _encode(decoded) != text:
        raise ValueError(text)
    return decoded


def _sorted(value: object) -> object:
    """Order mapping keys, so that a call's key does not depend on the order a JSON decoder kept."""
    if isinstance(value, Mapping):
        items = cast(Mapping[object, object], value)
        return {str(key): _sorted(items[key]) for key in sorted(items, key=str)}
    if isinstance(value, list | tuple):
        return [_sorted(item) for item in cast(Sequence[object], value)]
    return value
