"""The recorded model response of a run: only the latest, only under its own key."""

from __future__ import annotations

import pytest

from harness_temporal.stores.protocol import StepStore
from harness_temporal.testing.base import StoreTests
from harness_temporal.testing.samples import LONG_KEY, a_response


class ResponsesConformance(StoreTests):
    """Recording and reading model responses."""

    @pytest.mark.parametrize('body', [b'', b'\x00\xff', bytes(range(256)) * 4096], ids=['empty', 'bytes', '1 MiB'])
    async def test_response_reads_back_byte_for_byte(self, store: StepStore, body: bytes) -> None:
        await store.commit([a_response(body=body)])
        assert await store.get_model_response(run_id='run-1', key='request-1') == a_response(body=body)

    async def test_response_is_found_only_under_its_key_and_run(self, store: StepStore) -> None:
        await store.commit([a_response()])
        assert await store.get_model_response(run_id='run-1', key='request-2') is None
        assert await store.get_model_response(run_id='run-1', key='Request-1') is None
        assert await store.get_model_response(run_id='run-1', key='') is None
        assert await store.get_model_response(run_id='run-2', key='request-1') is None

    async def test_only_the_latest_response_is_kept(self, store: StepStore) -> None:
        await store.commit([a_response(key='request-1', body=b'1')])
        await store.commit([a_response(key='request-2', body=b'2')])
        assert await store.get_model_response(run_id='run-1', key='request-1') is None
        assert await store.get_model_response(run_id='run-1', key='request-2') == a_response(key='request-2', body=b'2')
        await store.commit([a_response(key='request-2', body=b'3')])
        assert await store.get_model_response(run_id='run-1', key='request-2') == a_response(key='request-2', body=b'3')

    async def test_last_response_of_a_batch_is_kept(self, store: StepStore) -> None:
        await store.commit([a_response(key='request-1'), a_response(key='request-2')])
        assert await store.get_model_response(run_id='run-1', key='request-1') is None
        assert await store.get_model_response(run_id='run-1', key='request-2') == a_response(key='request-2')

    async def test_each_run_has_a_response_of_its_own(self, store: StepStore) -> None:
        for run_id in ('run-1', 'run-2'):
            await store.commit([a_response(run_id, body=run_id.encode())])
        for run_id in ('run-1', 'run-2'):
            read = await store.get_model_response(run_id=run_id, key='request-1')
            assert read is not None
            assert read.body == run_id.encode()

    @pytest.mark.parametrize(
        'key', ['', 'a\x00b', '\ud800', "' OR 1=1", LONG_KEY], ids=['empty', 'NUL', 'lone surrogate', 'quote', 'long']
    )
    async def test_key_of_a_response_may_be_any_text(self, store: StepStore, key: str) -> None:
        await store.commit([a_response(key=key)])
        assert await store.get_model_response(run_id='run-1', key=key) == a_response(key=key)
        assert await store.get_model_response(run_id='run-1', key=f'{key} ') is None
