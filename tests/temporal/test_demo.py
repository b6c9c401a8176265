"""`harness-temporal demo` as a user runs it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from harness_temporal.cli.demo.agent import HEARTBEAT_TIMEOUT
from harness_temporal.errors import ConfigurationError
from harness_temporal.temporal.dev_server import temporal_binary

COMMAND = [sys.executable, '-c', 'from harness_temporal.cli import main; main()']


@pytest.mark.temporal
@pytest.mark.timeout(120)
def test_run_survives_two_dead_workers_and_pays_once(tmp_path: Path, record_property: pytest.RecordProperty) -> None:
    demo = subprocess.run(
        [*COMMAND, 'demo', '--json'], env=_environment(tmp_path), capture_output=True, text=True, timeout=110
    )

    assert demo.returncode == 0, demo.stdout + demo.stderr
    report = json.loads(demo.stdout.splitlines()[-1])
    assert report['ok'] is True
    assert (report['effects'], report['kills']) == (1, 2)
    assert '_apply_to_part' in report['output']
    assert 'messages.py:' in report['output']
    [unresolved] = report['unresolved']
    assert unresolved['tool'] == 'pay_reviewer'
    assert unresolved['idempotency_key']
    assert (report['steps'], len(report['recovery_s'])) == (7, 2)
    assert report['history_events'] > 0
    assert report['history_bytes'] > 0
    assert report['ui'].startswith('http')
    # How quick recovery is depends on the machine; the bar is the time-out and two seconds more.
    record_property('recovery_s', report['recovery_s'])
    print(f'recovered in {report["recovery_s"]} s with a heartbeat time-out of {HEARTBEAT_TIMEOUT.total_seconds()} s')
    assert list(tmp_path.iterdir()) == []


@pytest.mark.temporal
@pytest.mark.timeout(120)
@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM])
def test_nothing_is_left_after_an_interruption(tmp_path: Path, number: signal.Signals) -> None:
    demo = subprocess.Popen(
        [*COMMAND, 'demo', '--json'],
        env=_environment(tmp_path),
        stderr=subprocess.PIPE,
        # Where the tests run in the background of a shell, they and what they start ignore it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        _wait_for(tmp_path, '*/read_source.marker')
        children = _children(demo.pid)
        demo.send_signal(number)
        _, errors = demo.communicate(timeout=30)
    finally:
        demo.kill()

    assert demo.returncode == 130
    assert b'Traceback' not in errors
    assert len(children) >= 3, 'a server and the workers that are not killed yet'
    assert [pid for pid in children if _exists(pid)] == []
    assert list(tmp_path.iterdir()) == []


def test_a_missing_server_binary_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr('shutil.which', lambda *args, **kwargs: None)
    with pytest.raises(ConfigurationError, match=r'pip install "harness-temporal\[local\]"'):
        temporal_binary()


@pytest.mark.parametrize(('missing', 'arguments'), [('typer', []), ('rich', ['demo'])])
def test_a_missing_extra_is_said(missing: str, arguments: Sequence[str]) -> None:
    code = f'import sys; sys.modules[{missing!r}] = None; from harness_temporal.cli import main; main()'
    cli = subprocess.run([sys.executable, '-c', code, *arguments], capture_output=True, text=True)

    assert cli.returncode == 1
    assert 'pip install "harness-temporal[cli,local]"' in cli.stderr
    assert 'Traceback' not in cli.stderr


def _environment(folder: Path) -> dict[str, str]:
    return {**os.environ, 'TMPDIR': str(folder)}


def _wait_for(folder: Path, pattern: str) -> None:
    deadline = time.monotonic() + 60
    while not any(folder.glob(pattern)):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _children(pid: int) -> list[int]:
    listed = subprocess.run(['ps', '-eo', 'pid=,ppid='], capture_output=True, text=True, check=True).stdout
    pairs = [line.split() for line in listed.splitlines()]
    return [int(child) for child, parent in pairs if int(parent) == pid]


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
