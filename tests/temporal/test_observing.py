"""What a worker of one's own tells through `HarnessPlugin(observer=...)`."""

from __future__ import annotations

import uuid
from pathlib import Path

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from temporalio.client import Client
from temporalio.contrib.opentelemetry import TracingInterceptor
from temporalio.worker import Worker

from harness_temporal import AgentRunInput, HarnessPlugin
from harness_temporal.observability import HarnessMetrics
from harness_temporal.step_persistence import InMemoryStepStore
from harness_temporal.temporal.dev_server import DevServer
from tests.temporal import scenarios
from workflows.agent_run import AgentRunWorkflow


async def test_a_run_is_counted_and_its_spans_say_which_run_they_belong_to(
    temporal_server: DevServer, task_queue: str, tmp_path: Path
) -> None:
    spans, provider, metrics = InMemorySpanExporter(), TracerProvider(), HarnessMetrics()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    client = await Client.connect(
        temporal_server.address,
        interceptors=[TracingInterceptor(provider.get_tracer('tests'))],
        plugins=[HarnessPlugin(agents=scenarios.agents(InMemoryStepStore(), tmp_path), observer=metrics)],
    )
    async with Worker(client, task_queue=task_queue, workflows=[AgentRunWorkflow], build_id='tests'):
        ended = await client.execute_workflow(
            AgentRunWorkflow.run,
            AgentRunInput(agent='scripted', prompt='look'),
            id=f'run-{uuid.uuid4()}',
            task_queue=task_queue,
        )
    activities = [span for span in spans.get_finished_spans() if span.name.startswith('RunActivity:')]
    [tool] = [span for span in activities if span.name.endswith('__call_tool')]
    ours = {name: value for name, value in (tool.attributes or {}).items() if name.startswith('harness.')}
    assert ours == {
        'harness.run_id': ended.run_id,
        'harness.agent': 'scripted',
        'harness.conversation_id': ended.conversation_id,
        'harness.step': 1,
        'harness.tool': 'look',
        'harness.tool_call_id': 'call-0-0',
        'harness.attempt': 1,
    }
    assert metrics.registry.get_sample_value('harness_steps_total', {'agent': 'scripted'}) == 2
    ended_runs = {'agent': 'scripted', 'status': 'completed'}
    assert metrics.registry.get_sample_value('harness_runs_ended_total', ended_runs) == 1
