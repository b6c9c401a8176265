"""How a worker's connection logs, and tells of itself."""

from __future__ import annotations

import logging

from temporalio.runtime import LogForwardingConfig, LoggingConfig, PrometheusConfig, Runtime, TelemetryConfig

from harness_temporal.errors import ConfigurationError


def telemetry_runtime(sdk_metrics_address: str | None) -> Runtime:
    """Return a runtime whose logs go where Python's go, and whose metrics are served if there is an address.

    Raises:
        ConfigurationError: The address cannot be listened on.
    """
    logs = LoggingConfig(
        filter=LoggingConfig.default.filter,
        forwarding=LogForwardingConfig(logging.getLogger('temporalio.core'), append_target_to_name=False),
    )
    metrics = None
    if sdk_metrics_address is not None:
        metrics = PrometheusConfig(
            # The SDK wants a host.
            bind_address=f'0.0.0.0{sdk_metrics_address}'
            if sdk_metrics_address.startswith(':')
            else sdk_metrics_address,
            counters_total_suffix=True,
            unit_suffix=True,
            durations_as_seconds=True,
        )
    try:
        return Runtime(telemetry=TelemetryConfig(logging=logs, metrics=metrics))
    except ValueError as error:
        raise ConfigurationError(f'HARNESS_SDK_METRICS_ADDRESS is {sdk_metrics_address!r}: {error}') from error
