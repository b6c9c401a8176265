"""A worker as it is deployed: what it tells of itself, and how it stops."""

from __future__ import annotations

import gzip
import threading
import uuid
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import Client, WorkflowHandle

from harness_temporal import AgentRunInput, AgentRunOutput
from harness_temporal.conversations import ConversationSummary, SqliteConversationStore
from harness_temporal.step_persistence import SqliteStepStore
from tests.deploy.test_monitoring import metrics_asked_for
from tests.temporal.effects import noted
from tests.temporal.runs import until
from tests.workers.conftest import StartWorker
from tests.workers.processes import WorkerProcess, fetch, samples
from workflows.agent_run import AgentRunWorkflow

Handle = WorkflowHandle[AgentRunWorkflow, AgentRunOutput]


async def start_run(client: Client, task_queue: str, prompt: str) -> Handle:
    return await client.start_workflow(
        AgentRunWorkflow.run,
        AgentRunInput(agent='scripted', prompt=prompt, conversation_id='thread-1'),
        id=f'run-{uuid.uuid4()}',
        task_queue=task_queue,
    )


async def reset_to_first_tool_call(client: Client, handle: Handle) -> Handle:
    events = (await handle.fetch_history()).events
    call = next(
        event.event_id
        for event in events
        if event.activity_task_scheduled_event_attributes.activity_type.name.endswith('__call_tool')
    )
    task = max(
        e.event_id for e in events if e.HasField('workflow_task_completed_event_attributes') and e.event_id < call
    )
    reset = await client.workflow_service.reset_workflow_execution(
        ResetWorkflowExecutionRequest(
            namespace=client.namespace,
            workflow_execution={'workflow_id': handle.id, 'run_id': handle.first_execution_run_id or ''},
            reason='test',
            workflow_task_finish_event_id=task,
            request_id='reset',
        )
    )
    return client.get_workflow_handle_for(AgentRunWorkflow.run, handle.id, run_id=reset.run_id)


async def test_a_worker_tells_of_what_happened(
    client: Client, task_queue: str, start_worker: StartWorker, tmp_path: Path
) -> None:
    first = start_worker(HARNESS_PAYLOADS='tests.workers.agents:payloads')
    dies = await start_run(client, task_queue, 'pay_when_told')
    await until(lambda: bool(noted(tmp_path, 'paid')), seconds=60)
    first.kill()
    second = start_worker(HARNESS_PAYLOADS='tests.workers.agents:payloads')
    assert 'No result of this call' in str((await dies.result()).output)
    second.wait_until_ready()
    again = await start_run(client, task_queue, 'pay')
    ended = await again.result()
    await (await reset_to_first_tool_call(client, again)).result()
    assert len(noted(tmp_path, 'paid')) == 2

    check_metrics(second)
    check_log(second, again, ended)
    of_the_sdk = {name.partition('{')[0] for name in samples(fetch(f'http://{second.sdk}/metrics')[1])}
    asked_for = {name for name in metrics_asked_for() if name.startswith('temporal_')}
    assert len(asked_for) > 5
    assert asked_for <= of_the_sdk


def check_metrics(worker: WorkerProcess) -> None:
    scraped = worker.samples()
    assert scraped['harness_unknown_outcomes_total{agent="scripted",tool="pay_when_told"}'] == 1
    assert scraped['harness_suppressed_duplicates_total{agent="scripted",what="tool"}'] == 1
    assert scraped['harness_runs_started_total{agent="scripted"}'] == 1
    assert scraped['harness_runs_ended_total{agent="scripted",status="completed"}'] == 3
    assert scraped['harness_tool_calls_total{agent="scripted",outcome="returned",tool="pay"}'] == 1
    assert scraped['harness_steps_total{agent="scripted"}'] >= 4
    assert scraped['harness_store_seconds_count{operation="commit",store="SqliteStepStore"}'] > 4
    assert scraped['harness_payload_saved_bytes_total'] > scraped['harness_payload_stored_bytes_total'] > 0


def check_log(worker: WorkerProcess, handle: Handle, ended: AgentRunOutput) -> None:
    lines = worker.lines()
    assert {'time', 'level', 'logger', 'message'} <= lines[0].keys()
    [unknown] = [line for line in lines if line['level'] == 'WARNING' and 'is unknown' in line['message']]
    assert unknown['tool'] == 'pay_when_told'
    assert unknown['attempt'] == 2
    [begun] = [line for line in lines if line['message'] == 'The run started.']
    assert begun['workflow_id'] == handle.id
    assert begun['workflow_run_id'] == handle.first_execution_run_id
    assert begun['run_id'] == ended.run_id
    assert begun['agent'] == 'scripted'
    assert begun['conversation_id'] == 'thread-1'
    assert begun['activity_type'].endswith('__start_run')


class SpanCollector:
    """Takes spans over OTLP."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        spans = self.spans

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers['Content-Length']))
                if self.headers.get('Content-Encoding') == 'gzip':
                    body = gzip.decompress(body)
                request = ExportTraceServiceRequest.FromString(body)
                spans.extend(span for r in request.resource_spans for s in r.scope_spans for span in s.spans)
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(('127.0.0.1', 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        self.url = f'http://127.0.0.1:{self._server.server_port}'

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def collector() -> Iterator[SpanCollector]:
    collector = SpanCollector()
    yield collector
    collector.close()


async def test_a_worker_that_is_told_to_stop_finishes_what_runs_and_takes_nothing_new(
    client: Client, task_queue: str, start_worker: StartWorker, tmp_path: Path, collector: SpanCollector
) -> None:
    worker = start_worker(HARNESS_TRACING='on', OTEL_EXPORTER_OTLP_ENDPOINT=collector.url)
    worker.wait_until_ready()
    running = await start_run(client, task_queue, 'pay_when_told')
    await until(lambda: bool(noted(tmp_path, 'paid')))
    worker.terminate()
    await until(lambda: worker.get('/readyz')[0] == 503)
    assert 'stopping' in worker.get('/readyz')[1]
    assert worker.get('/livez')[0] == 200
    (tmp_path / 'told').touch()
    assert worker.process.wait(30) == 0
    assert worker.lines()[-1]['message'] == 'worker stopped'

    store = SqliteStepStore(tmp_path / 'runs.db')
    [run] = await store.list_runs()
    [effect] = await store.list_tool_effects(run_id=run.run_id)
    assert effect.status == 'completed'
    # What it knew of the tool call went out before it ended.
    [call] = [span for span in collector.spans if span.name.startswith('RunActivity') and 'call_tool' in span.name]
    attributes = {attribute.key: attribute.value for attribute in call.attributes}
    assert attributes['harness.run_id'].string_value == run.run_id
    await running.terminate()


async def test_a_worker_deletes_old_conversations_on_its_schedule(
    client: Client, task_queue: str, start_worker: StartWorker, tmp_path: Path
) -> None:
    store = SqliteConversationStore(tmp_path / 'runs.db')
    saved = await store.save(summary=ConversationSummary(), messages=[])
    worker = start_worker(
        HARNESS_MAINTENANCE='on',
        HARNESS_CONVERSATIONS='tests.workers.agents:conversations',
        # A tenth of a second.
        HARNESS_EXPIRE_CONVERSATIONS_AFTER_DAYS='0.000001',
    )
    worker.wait_until_ready()
    schedule = client.get_schedule_handle(f'store-maintenance-{task_queue}')
    await schedule.trigger()

    async def is_gone() -> bool:
        return saved.id not in [summary.id for summary in await store.listing()]

    try:
        await until(is_gone)
    finally:
        await schedule.delete()
    await store.aclose()
    worker.terminate()
    assert worker.process.wait(30) == 0
