"""What a log line says of the run it belongs to, for machines and for people."""

from __future__ import annotations

import json
import logging
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Final

from harness_temporal.context_variables import having

FIELDS_ATTRIBUTE: Final = 'harness_fields'
"""Attribute of a log record with the fields of its run."""
_OWN: Final = frozenset(vars(logging.makeLogRecord({}))) | {'message', 'asctime', FIELDS_ATTRIBUTE}
_current: ContextVar[Mapping[str, object]] = ContextVar('harness_temporal.log_fields')


@contextmanager
def log_fields(fields: Mapping[str, object]) -> Generator[None]:
    """Have the log lines of the code within say this, beside what those around it say. `None` is left out."""
    with having(_current, current_fields()):
        add_log_fields(fields)
        yield


def add_log_fields(fields: Mapping[str, object]) -> None:
    """Have the log lines of the rest of this task say this too. `None` is left out."""
    known = {name: value for name, value in fields.items() if value is not None}
    _current.set({**current_fields(), **known})


def current_fields() -> Mapping[str, object]:
    """Return what log lines of the calling code say."""
    return _current.get({})


class JsonFormatter(logging.Formatter):
    """Formats a record as one JSON object on one line.

    It has `time` (UTC), `level`, `logger`, `message`, the fields of the run, what the call gave as `extra=`, and for an
    exception `error` with `type`, `message` and `stack`.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line: dict[str, object] = {
            'time': datetime.fromtimestamp(record.created, UTC).isoformat(timespec='milliseconds'),
            'level': record.levelname,
            'logger': record.name,
            'message': record.getMessage(),
        }
        extra = {name: value for name, value in vars(record).items() if name not in _OWN}
        # The record's own are the last word: no field of a run may pass for another level or logger.
        line = {**line, **extra, **_fields(record), **line}
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            line['error'] = {
                'type': type(error).__name__,
                'message': str(error),
                'stack': self.formatException(record.exc_info),
            }
        if record.stack_info:
            line['stack'] = self.formatStack(record.stack_info)
        # ASCII, because a lone surrogate is in some file names and in no UTF-8.
        return json.dumps(line, default=str)


class TextFormatter(logging.Formatter):
    """Formats a record for a person at a terminal: time, level, message, and the fields of the run."""

    def __init__(self) -> None:
        super().__init__('%(asctime)s %(levelname)-7s %(message)s', datefmt='%H:%M:%S')

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return the line without a traceback."""
        fields = ' '.join(f'{name}={value}' for name, value in _fields(record).items())
        line = super().formatMessage(record)
        return f'{line}  [{fields}]' if fields else line


def _fields(record: logging.LogRecord) -> Mapping[str, Any]:
    return getattr(record, FIELDS_ATTRIBUTE, {})
