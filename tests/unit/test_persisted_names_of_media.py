"""Names that are for ever: of blobs in every media store, and of what maintains stores."""

from __future__ import annotations

import asyncio
import base64
import json
from dataclasses import fields
from datetime import timedelta
from pathlib import Path

import pytest
from pydantic_ai.durable_exec.temporal import PydanticAIPayloadConverter
from temporalio import workflow
from temporalio.api.common.v1 import Payload

from harness_temporal.media import DiskMediaStore, MediaContext, MediaExternalizer, default_key_strategy, media_uri
from harness_temporal.media.s3 import headers
from harness_temporal.temporal import MaintenanceInput, MaintenanceOutput, maintenance
from workflows.maintenance import StoreMaintenanceWorkflow

DIGEST = 'ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad'


def test_uri_and_default_key_of_a_blob() -> None:
    assert media_uri(b'abc') == f'media+sha256://{DIGEST}'
    assert default_key_strategy(media_uri(b'abc'), MediaContext()) == f'{DIGEST}.bin'


def test_files_of_a_blob_on_disk(tmp_path: Path) -> None:
    context = MediaContext(media_type='text/plain', metadata={'a': 'b'})
    asyncio.run(DiskMediaStore(tmp_path).put(b'abc', context=context))
    files = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert files.pop(f'{DIGEST}.bin') == b'abc'
    about = json.loads(files.pop(f'{DIGEST}.bin.meta.json'))
    assert about == {'version': 1, 'media_type': 'text/plain', 'metadata': '{"a": "b"}'}
    assert files == {}


def test_headers_of_a_blob_in_s3() -> None:
    context = MediaContext(media_type='text/plain', metadata={'plain': 'tag', 'Not Plain': 'x'})
    found = headers.object_headers(context, DIGEST)
    assert found['ContentType'] == 'text/plain'
    assert found['Metadata']['plain'] == 'tag'
    assert json.loads(base64.b64decode(found['Metadata']['harness-temporal'])) == {
        'version': 1,
        'metadata': '{"Not Plain": "x"}',
        'sha256': DIGEST,
    }


def test_names_in_histories(tmp_path: Path) -> None:
    assert maintenance.MAINTAIN_ACTIVITY == 'harness_temporal__maintain'
    assert workflow._Definition.must_from_class(StoreMaintenanceWorkflow).name == 'StoreMaintenance'
    assert [item.name for item in fields(MaintenanceInput)] == [
        'idle_for',
        'include_unresolved',
        'grace',
        'payloads_untouched_for',
        'conversations_idle_for',
    ]
    assert [item.name for item in fields(MaintenanceOutput)] == [
        'runs',
        'messages',
        'blobs',
        'leftovers',
        'payload_pieces',
        'conversations',
    ]
    assert MediaExternalizer[None](DiskMediaStore(tmp_path)).id == 'media_externalizer'


@pytest.mark.parametrize(
    'stored',
    [
        b'{"idle_for":"P5D","include_unresolved":true,"grace":"P1D"}',
        b'{"idle_for":"P5D","include_unresolved":true,"grace":"P1D","payloads_untouched_for":null}',
    ],
    ids=['first', 'with payloads'],
)
def test_input_of_an_earlier_schedule_keeps_its_meaning(stored: bytes) -> None:
    payload = Payload(metadata={'encoding': b'json/plain'}, data=stored)
    [input] = PydanticAIPayloadConverter().from_payloads([payload], [MaintenanceInput])
    assert input == MaintenanceInput(idle_for=timedelta(days=5), include_unresolved=True)
