"""Metrics for Prometheus. Needs the extra `metrics`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from harness_temporal.lazy import needed_by
from harness_temporal.observability.observer import Duplicate, Observer

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Counter

STORE_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
"""Seconds. A commit takes milliseconds; what takes seconds holds up every step."""


class HarnessMetrics(Observer):
    """Counts what happens. Give it to `HarnessPlugin(observer=...)`.

    Args:
        registry: Where the metrics are registered; a new one by default. Two instances need two registries.

    Raises:
        ConfigurationError: `prometheus-client` is not installed.
    """

    CONTENT_TYPE: Final = 'text/plain; version=0.0.4; charset=utf-8'
    """Of `exposition`."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        with needed_by('`HarnessMetrics`', 'prometheus-client', 'metrics'):
            from prometheus_client import CollectorRegistry, Histogram
        self.registry = registry if registry is not None else CollectorRegistry()
        self._runs_started = self._counter('runs_started', 'Runs that were registered.', 'agent')
        self._runs_ended = self._counter('runs_ended', 'Runs whose end was recorded.', 'agent', 'status')
        self._steps = self._counter('steps', 'Model responses that were recorded.', 'agent')
        self._tool_calls = self._counter('tool_calls', 'Tool calls that ended.', 'agent', 'tool', 'outcome')
        self._unknown = self._counter(
            'unknown_outcomes', 'Tool calls that were not made again with an unknown outcome.', 'agent', 'tool'
        )
        self._suppressed = self._counter(
            'suppressed_duplicates', 'Calls that a recorded outcome took the place of.', 'agent', 'what'
        )
        self._store_errors = self._counter('store_errors', 'Operations of a store that raised.', 'store', 'operation')
        self._payload_saved = self._counter(
            'payload_saved_bytes', "Bytes of payloads that were kept out of workflows' histories."
        )
        self._payload_stored = self._counter(
            'payload_stored_bytes', 'Bytes of payloads that were new in the media store.'
        )
        self._store_seconds = Histogram(
            'harness_store_seconds',
            'How long an operation of a store took.',
            ('store', 'operation'),
            buckets=STORE_BUCKETS,
            registry=self.registry,
        )

    def exposition(self) -> bytes:
        """Return all metrics of the registry in the text format that Prometheus scrapes."""
        from prometheus_client.exposition import generate_latest

        return generate_latest(self.registry)

    def _counter(self, name: str, documentation: str, *labels: str) -> Counter:
        from prometheus_client import Counter

        return Counter(f'harness_{name}', documentation, labels, registry=self.registry)

    def run_started(self, *, agent: str) -> None:
        """Count it."""
        self._runs_started.labels(agent).inc()

    def run_ended(self, *, agent: str, completed: bool) -> None:
        """Count it."""
        self._runs_ended.labels(agent, 'completed' if completed else 'failed').inc()

    def step_ended(self, *, agent: str) -> None:
        """Count it."""
        self._steps.labels(agent).inc()

    def tool_call_ended(self, *, agent: str, tool: str, outcome: str) -> None:
        """Count it."""
        self._tool_calls.labels(agent, tool, outcome).inc()

    def unknown_outcome(self, *, agent: str, tool: str) -> None:
        """Count it."""
        self._unknown.labels(agent, tool).inc()

    def duplicate_suppressed(self, *, agent: str, what: Duplicate) -> None:
        """Count it."""
        self._suppressed.labels(agent, what).inc()

    def store_called(self, *, store: str, operation: str, seconds: float, failed: bool) -> None:
        """Measure it."""
        self._store_seconds.labels(store, operation).observe(seconds)
        if failed:
            self._store_errors.labels(store, operation).inc()

    def payload_stored(self, *, saved: int, stored: int) -> None:
        """Count them."""
        self._payload_saved.inc(saved)
        self._payload_stored.inc(stored)
