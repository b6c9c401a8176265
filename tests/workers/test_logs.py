from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from harness_temporal.hosting.logs import configure_logging
from harness_temporal.observability import log_fields

logger = logging.getLogger('tests.logs')


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    """Give the process its log back."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    logging.captureWarnings(False)
    root.handlers[:] = handlers
    root.setLevel(level)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_elsewhere_than_on_a_terminal_a_line_is_json() -> None:
    stream = io.StringIO()
    configure_logging('INFO', 'auto', stream)
    with log_fields({'run_id': 'run-1', 'tool': None, 'level': 'forged'}), log_fields({'step': 2}):
        logger.info('said %s', 'a\nb\udcff', extra={'cents': 5})
    logger.debug('not said')
    [line] = [json.loads(text) for text in stream.getvalue().splitlines()]
    assert line.pop('time').endswith('+00:00')
    assert line == {
        'level': 'INFO',
        'logger': 'tests.logs',
        'message': 'said a\nb\udcff',
        'cents': 5,
        'run_id': 'run-1',
        'step': 2,
    }


def test_an_exception_is_one_line_of_json() -> None:
    stream = io.StringIO()
    configure_logging('INFO', 'json', stream)
    try:
        raise ValueError('no')
    except ValueError:
        logger.exception('it failed')
    [line] = [json.loads(text) for text in stream.getvalue().splitlines()]
    assert (line['error']['type'], line['error']['message']) == ('ValueError', 'no')
    assert 'Traceback' in line['error']['stack']


def test_on_a_terminal_a_line_is_for_people() -> None:
    stream = Terminal()
    configure_logging('INFO', 'auto', stream)
    with log_fields({'run_id': 'run-1'}):
        logger.warning('said')
    assert stream.getvalue().rstrip().endswith('WARNING said  [run_id=run-1]')
