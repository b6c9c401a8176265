"""Make all checks, each whatever the others find."""

from __future__ import annotations

from collections.abc import Mapping

from rich.text import Text

from harness_temporal.cli.connecting import Place
from harness_temporal.cli.doctor.checks import Check, Found, tried
from harness_temporal.cli.doctor.stores import check_agents, check_conversations, check_payloads, check_store
from harness_temporal.cli.doctor.temporal import TemporalChecks
from harness_temporal.cli.output import Output

_STYLES = {'ok': 'green', 'failed': 'bold red', 'skipped': 'dim'}


async def examine(place: Place, store: str | None) -> Output:
    """Check Temporal, the stores, the payloads and the agents."""
    temporal = TemporalChecks(place)
    checks: Mapping[str, Check] = {
        'temporal': temporal.server,
        'namespace': temporal.namespace,
        'search attributes': temporal.search_attributes,
        'task queue': temporal.task_queue,
        'store': lambda: check_store(store),
        'conversations': check_conversations,
        'payloads': check_payloads,
        'agents': check_agents,
    }
    found = {name: await tried(check) for name, check in checks.items()}
    data = {'checks': {name: {'status': item.status, 'told': item.told} for name, item in found.items()}}
    return Output(data, _shown(found), ok=all(item.status != 'failed' for item in found.values()))


def _shown(found: Mapping[str, Found]) -> Text:
    shown = Text()
    for name, item in found.items():
        shown.append(f'{item.status:<8}', style=_STYLES[item.status]).append(f'{name}: {item.told}\n')
    shown.rstrip()
    return shown
