"""Names that are for ever: of blobs in every media store, and of what maintains stores."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path

from temporalio import workflow

from harness_temporal.media import DiskMediaStore, MediaContext, MediaExternalizer, default_key_strategy, media_uri
from harness_temporal.media.s3 import headers
from harness_temporal.temporal import maintenance
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
    assert MediaExternalizer[None](DiskMediaStore(tmp_path)).id == 'media_externalizer'
