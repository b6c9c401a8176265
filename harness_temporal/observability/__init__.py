"""What a worker tells of its work: metrics for Prometheus, fields for logs."""

from __future__ import annotations

from harness_temporal.observability.logs import JsonFormatter, TextFormatter, log_fields
from harness_temporal.observability.metrics import HarnessMetrics
from harness_temporal.observability.observer import Observer, observing

__all__ = [
    'HarnessMetrics',
    'JsonFormatter',
    'Observer',
    'TextFormatter',
    'log_fields',
    'observing',
]
