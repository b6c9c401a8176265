"""Spans over OTLP. Needs the extra `tracing`."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from opentelemetry import trace
from temporalio.client import Interceptor

from harness_temporal.errors import ConfigurationError


@contextmanager
def tracing(enabled: bool) -> Generator[list[Interceptor]]:
    """Yield what makes spans of workflows and activities; at the end, send those that are left.

    Where they go, and under which name, say the standard `OTEL_…` variables.

    Raises:
        ConfigurationError: A package is missing.
    """
    if not enabled:
        yield []
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from temporalio.contrib.opentelemetry import TracingInterceptor
    except ModuleNotFoundError as error:
        raise ConfigurationError(f"HARNESS_TRACING needs {error.name}: install 'harness-temporal[tracing]'.") from error
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    # Pydantic AI's own spans of an instrumented agent go there too.
    trace.set_tracer_provider(provider)
    try:
        yield [TracingInterceptor(provider.get_tracer('harness_temporal'))]
    finally:
        provider.shutdown()
