"""The settings, and how they get into clients, workers and replayers."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.durable_exec.temporal import PydanticAIPayloadConverter
from temporalio.api.common.v1 import Payload
from temporalio.client import Client
from temporalio.converter import DataConverter, PayloadCodec
from temporalio.worker import Worker

from harness_temporal.errors import ConfigurationError, HarnessError
from harness_temporal.media import DiskMediaStore
from harness_temporal.step_persistence import FileStepStore
from harness_temporal.temporal import HarnessPlugin
from harness_temporal.temporal.dev_server import DevServer
from harness_temporal.temporal.payloads import (
    Key,
    KeyRing,
    PayloadStorage,
    PayloadTooLargeError,
    PayloadUnreadableError,
)
from harness_temporal.temporal.payloads.converter import limited_converter
from harness_temporal.temporal.payloads.storage import with_payload_storage
from tests.temporal.payloads.workers import Setup, agent
from workflows.agent_run import AgentRunWorkflow


class OtherCodec(PayloadCodec):
    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [*payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [*payloads]


@pytest.fixture
def storage(tmp_path: Path) -> PayloadStorage:
    return PayloadStorage(DiskMediaStore(tmp_path), limit_bytes=1000)


CONVERTER = DataConverter(payload_converter_class=PydanticAIPayloadConverter)


def test_a_converter_gets_the_codec_and_the_limit_once(storage: PayloadStorage) -> None:
    converter = with_payload_storage(CONVERTER, storage)
    assert converter.payload_codec is storage.codec
    assert issubclass(converter.payload_converter_class, PydanticAIPayloadConverter)
    assert with_payload_storage(converter, storage) is converter


def test_the_codec_of_somebody_else_is_kept_or_refused(storage: PayloadStorage) -> None:
    given = DataConverter(payload_converter_class=PydanticAIPayloadConverter, payload_codec=OtherCodec())
    assert with_payload_storage(given, None).payload_codec is given.payload_codec
    with pytest.raises(ConfigurationError, match='OtherCodec'):
        with_payload_storage(given, storage)


def test_a_value_of_exactly_the_limit_passes_and_one_byte_more_does_not() -> None:
    base = CONVERTER.payload_converter.to_payloads(['x' * 100])[0].ByteSize()
    converter = limited_converter(PydanticAIPayloadConverter, base)()
    assert converter.from_payloads(converter.to_payloads(['x' * 100])) == ['x' * 100]
    with pytest.raises(PayloadTooLargeError, match=f'has {base + 1} bytes .* limit is {base}') as raised:
        converter.to_payloads(['x' * 101])
    assert (raised.value.size, raised.value.limit) == (base + 1, base)


def test_the_converter_class_crosses_to_the_processes_of_a_pool() -> None:
    made = limited_converter(PydanticAIPayloadConverter, 1000)
    assert pickle.loads(pickle.dumps(made)) is made


@pytest.mark.parametrize(
    'error', [PayloadTooLargeError('workflow', 2, 1), PayloadUnreadableError('workflow', 'gone', piece='uri')]
)
def test_errors_keep_their_fields_across_processes(error: HarnessError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error)
    assert vars(again) == vars(error)


@pytest.mark.parametrize(
    'settings', [{'threshold_bytes': 0}, {'limit_bytes': 0}, {'cache_bytes': -1}], ids=['threshold', 'limit', 'cache']
)
def test_numbers_out_of_range_are_refused(tmp_path: Path, settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(settings))):
        PayloadStorage(DiskMediaStore(tmp_path), **settings)


def test_storage_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigurationError, match='a media store, keys, or both'):
        PayloadStorage(None)


@pytest.mark.temporal
async def test_a_media_store_is_not_shared_with_the_runs(temporal_server: DevServer, setup: Setup) -> None:
    media_store = DiskMediaStore(setup.folder / 'blobs')
    runs = FileStepStore(setup.folder / 'runs', media_store=media_store)
    plugin = HarnessPlugin(agents=[agent(runs, setup)], payloads=PayloadStorage(media_store))
    client = await Client.connect(temporal_server.address, plugins=[plugin])
    with pytest.raises(ConfigurationError, match='share a media store'):
        Worker(client, task_queue=setup.task_queue, workflows=[AgentRunWorkflow], build_id='tests')


async def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, 'cryptography.hazmat.primitives.ciphers.aead', None)
    storage = PayloadStorage(None, keys=KeyRing.of(Key.generate('k1')))
    with pytest.raises(ConfigurationError, match=r'harness-temporal\[crypto\]'):
        await storage.codec.encode([Payload()])


def test_the_plugin_needs_no_extra() -> None:
    code = (
        'import sys; sys.modules["cryptography"] = None; '
        'import harness_temporal.temporal.payloads, harness_temporal.temporal.plugin, harness_temporal.cli.codec_server'
    )
    subprocess.run([sys.executable, '-c', code], check=True, timeout=120)
