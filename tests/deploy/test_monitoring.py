"""Dashboards and alerts ask for metrics that are there. Those of Temporal's SDK are looked for in a real scrape
(`tests/workers/test_worker_process.py`)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import promql_parser
import pytest

from harness_temporal.observability import HarnessMetrics
from tests.deploy.files import DEPLOY, documents

DASHBOARD: dict[str, Any] = json.loads((DEPLOY / 'grafana' / 'dashboard.json').read_text())
[RULES] = documents(DEPLOY / 'prometheus' / 'alerts.yaml')
ALERTS: list[dict[str, Any]] = [rule for group in RULES['groups'] for rule in group['rules']]


def queries() -> list[str]:
    shown = [target['expr'] for panel in DASHBOARD['panels'] for target in panel.get('targets', ())]
    return [*shown, *(rule['expr'] for rule in ALERTS)]


def metrics_in(node: object) -> Iterator[str]:
    """Yield the metrics of a query. Raises ValueError if it is none."""
    if isinstance(node, str):
        node = promql_parser.parse(re.sub(r'\$__rate_interval', '5m', node))
    if isinstance(node, promql_parser.VectorSelector) and node.name is not None:
        yield node.name
    for attribute in ('lhs', 'rhs', 'expr', 'vector_selector'):
        if getattr(node, attribute, None) is not None:
            yield from metrics_in(getattr(node, attribute))
    for argument in getattr(node, 'args', None) or ():
        yield from metrics_in(argument)


def metrics_asked_for() -> set[str]:
    return {name for query in queries() for name in metrics_in(query)}


def our_metrics() -> set[str]:
    names = set[str]()
    for metric in HarnessMetrics().registry.collect():
        names |= {f'{metric.name}_{suffix}' for suffix in {'counter': ['total'], 'histogram': ['bucket']}[metric.type]}
    return names


def test_all_of_our_metrics_are_shown_and_no_others_asked_for() -> None:
    asked = {name for name in metrics_asked_for() if name.startswith('harness_')}
    assert asked == our_metrics()
    assert all(name.startswith('temporal_') for name in metrics_asked_for() - asked)


def test_variables_of_the_dashboard_are_defined() -> None:
    used = set(re.findall(r'\$\{?(\w+)', ' '.join(queries()))) - {'__rate_interval', 'labels'}
    assert used | {'datasource'} == {variable['name'] for variable in DASHBOARD['templating']['list']}


def test_panels_do_not_overlap() -> None:
    cells = [
        (panel['gridPos']['x'] + x, panel['gridPos']['y'] + y)
        for panel in DASHBOARD['panels']
        for x in range(panel['gridPos']['w'])
        for y in range(panel['gridPos']['h'])
    ]
    assert len(cells) == len(set(cells))
    assert len({panel['id'] for panel in DASHBOARD['panels']}) == len(DASHBOARD['panels'])


@pytest.mark.parametrize('rule', ALERTS, ids=lambda rule: rule['alert'])
def test_an_alert_says_what_to_do(rule: dict[str, Any]) -> None:
    assert rule['labels']['severity'] in ('warning', 'critical')
    assert rule['annotations'].keys() == {'summary', 'description'}
    labels = set(re.findall(r'\$labels\.(\w+)', json.dumps(rule['annotations'])))
    kept = re.search(r'by \(([^)]*)\)', rule['expr'])
    assert labels <= set(kept[1].split(', ') if kept else ())
