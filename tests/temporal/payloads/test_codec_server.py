"""The codec server over real HTTP, with the payloads of a real history, as the UI sends them."""

from __future__ import annotations

import base64
import http.client
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from anyio import to_thread
from google.protobuf import json_format
from temporalio.api.common.v1 import Payloads

from harness_temporal.cli.codec_server import CodecServer, CodecServerSettings, run, serve_storage, shared_token
from harness_temporal.encryption.keys import KEYS_VARIABLE
from harness_temporal.errors import ConfigurationError
from harness_temporal.temporal.dev_server import free_port
from harness_temporal.temporal.payloads import Key, KeyRing, PayloadStorage
from harness_temporal.temporal.payloads.stuck import payloads_in
from tests.temporal.payloads.workers import Setup, noise

KEY = Key.generate('k1')
UI, TOKEN = 'https://temporal.example.com', 'right-token'
STORAGE = PayloadStorage(None, keys=KeyRing.of(KEY))


@contextmanager
def serving(storage: PayloadStorage = STORAGE) -> Iterator[str]:
    settings = CodecServerSettings({'default': storage}, shared_token(TOKEN), [UI])
    server = CodecServer(settings, port=0)
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        yield server.address
    finally:
        server.close()
        thread.join()


@pytest.fixture(scope='module')
def address() -> Iterator[str]:
    with serving() as served:
        yield served


def ask(
    address: str, method: str, path: str, body: bytes = b'', **headers: str
) -> tuple[int, http.client.HTTPMessage, bytes]:
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=30)
    try:
        connection.request(method, path, body, {name.replace('_', '-'): value for name, value in headers.items()})
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()
    finally:
        connection.close()


def post(address: str, path: str, given: Any, **headers: str) -> tuple[int, Any]:
    right = {'Authorization': f'Bearer {TOKEN}', 'X_Namespace': 'default', 'Origin': UI}
    body = given if isinstance(given, bytes) else json.dumps(given).encode()
    status, _, answer = ask(address, 'POST', path, body, **{**right, **headers})
    return status, json.loads(answer)


def plain(value: object) -> dict[str, Any]:
    data = base64.b64encode(json.dumps(value).encode()).decode()
    return {'payloads': [{'metadata': {'encoding': base64.b64encode(b'json/plain').decode()}, 'data': data}]}


def test_what_it_encodes_it_decodes(address: str) -> None:
    status, encoded = post(address, '/encode', plain('hello'))
    assert status == 200
    assert encoded != plain('hello')
    assert post(address, '/decode', encoded) == (200, plain('hello'))
    assert post(address, '/some/prefix/decode', encoded) == (200, plain('hello'))
    assert post(address, '/decode', {'payloads': []}) == (200, {})


@pytest.mark.temporal
async def test_it_shows_what_a_run_left_in_its_history(setup: Setup) -> None:
    sealed = replace(setup, keys=KEY.dump())
    async with sealed.working():
        run = await sealed.start('page', 'pages')
        await run.result()
    storage = sealed.payloads()
    assert storage is not None
    with serving(storage) as address:
        shown: list[str] = []
        for event in (await run.fetch_history()).events:
            for payload in payloads_in(event):
                given = json_format.MessageToJson(Payloads(payloads=[payload])).encode()
                status, answer = await to_thread.run_sync(lambda given=given: post(address, '/decode', given))
                assert status == 200
                shown += [base64.b64decode(item.get('data', '')).decode() for item in answer['payloads']]
    assert any('"prompt":"page"' in text for text in shown)
    assert any(f'TOP-SECRET-RESULT {noise(3000)}' in text for text in shown)


@pytest.mark.parametrize(
    ('path', 'headers', 'status'),
    [
        ('/decode', {'Authorization': ''}, 401),
        ('/decode', {'Authorization': 'Bearer wrong-token'}, 401),
        ('/decode', {'Authorization': TOKEN}, 401),
        ('/encode', {'Authorization': 'Bearer '}, 401),
        ('/decode', {'X_Namespace': 'other'}, 403),
        ('/decode', {'X_Namespace': ''}, 403),
        ('/other', {}, 404),
    ],
)
def test_who_may_not_gets_nothing(address: str, path: str, headers: dict[str, str], status: int) -> None:
    refused, answer = post(address, path, plain('hello'), **headers)
    assert refused == status
    assert [*answer] == ['message']


@pytest.mark.parametrize(
    'body', [b'', b'{', b'1', b'{"other": 1}', b'\xff', b'{"payloads": [{"data": "not base64!"}]}']
)
def test_what_is_no_payloads_is_refused(address: str, body: bytes) -> None:
    status, answer = post(address, '/decode', body)
    assert status == 400
    assert 'no payloads' in answer['message']


def test_a_request_that_is_too_large_is_refused_before_it_is_read(address: str) -> None:
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=30)
    connection.putrequest('POST', '/decode')
    for name, value in {
        'Authorization': f'Bearer {TOKEN}',
        'X-Namespace': 'default',
        'Content-Length': '1' + '0' * 12,
    }.items():
        connection.putheader(name, value)
    connection.endheaders()
    assert connection.getresponse().status == 413
    connection.close()


def test_what_cannot_be_read_is_said(address: str) -> None:
    with serving(PayloadStorage(None, keys=KeyRing.of(Key.generate('k2')))) as other:
        _, encoded = post(other, '/encode', plain('hello'))
    status, answer = post(address, '/decode', encoded)
    assert status == 422
    assert "key 'k2'" in answer['message']


def test_a_preflight_of_the_ui_is_answered_without_a_token(address: str) -> None:
    asked = {
        'Origin': UI,
        'Access_Control_Request_Method': 'POST',
        'Access_Control_Request_Headers': 'authorization,content-type,x-namespace',
    }
    status, headers, body = ask(address, 'OPTIONS', '/decode', **asked)
    assert (status, body) == (204, b'')
    assert headers['Access-Control-Allow-Origin'] == UI
    assert 'POST' in headers['Access-Control-Allow-Methods']
    allowed = headers['Access-Control-Allow-Headers'].lower()
    assert all(name in allowed for name in ('authorization', 'content-type', 'x-namespace'))


@pytest.mark.parametrize('origin', ['https://evil.example.com', f'{UI}.evil.com', 'null', UI.upper()])
def test_another_origin_is_not_allowed(address: str, origin: str) -> None:
    for method in ('OPTIONS', 'POST'):
        _, headers, _ = ask(address, method, '/decode', Origin=origin)
        assert 'Access-Control-Allow-Origin' not in headers
        assert headers['Vary'] == 'Origin'


def test_an_error_can_be_read_by_the_ui(address: str) -> None:
    status, headers, _ = ask(address, 'POST', '/decode', b'{}', Origin=UI)
    assert status == 401
    assert headers['Access-Control-Allow-Origin'] == UI


def test_it_says_that_it_lives(address: str) -> None:
    assert ask(address, 'GET', '/healthz')[0] == 200
    assert ask(address, 'GET', '/')[0] == 404


@pytest.mark.parametrize('token', ['', 'é', 'a\nb'])
def test_a_token_that_no_header_could_hold_is_refused(token: str) -> None:
    with pytest.raises(ConfigurationError, match='token'):
        shared_token(token)


@pytest.mark.parametrize('origin', ['*', 'https://a.example.com/', 'https://*.example.com', 'a.example.com', ''])
def test_what_is_no_origin_is_refused(origin: str) -> None:
    with pytest.raises(ConfigurationError, match='is no origin'):
        CodecServerSettings({'default': STORAGE}, shared_token(TOKEN), [origin])


def test_a_server_of_no_namespace_is_refused() -> None:
    with pytest.raises(ConfigurationError, match='at least one namespace'):
        CodecServerSettings({}, shared_token(TOKEN))


def test_a_port_that_is_taken_is_an_error(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    settings = CodecServerSettings({'default': STORAGE}, shared_token(TOKEN))
    assert run(settings, host='127.0.0.1', port=urlsplit(address).port or 0) == 1
    assert 'cannot listen' in capsys.readouterr().err


def test_the_command_serves_the_storage_that_it_is_given(tmp_path: Path) -> None:
    (tmp_path / 'our_payloads.py').write_text(
        'from harness_temporal.temporal.payloads import KeyRing, PayloadStorage\n'
        'payloads = PayloadStorage(None, keys=KeyRing.from_environment())\n'
    )
    environment = {**os.environ, 'HARNESS_CODEC_TOKEN': TOKEN, KEYS_VARIABLE: Key.generate('k1').dump()}
    port = free_port()
    program = 'from harness_temporal.cli import main; main()'
    command = [sys.executable, '-c', program, 'codec-server', 'our_payloads:payloads']
    process = subprocess.Popen(
        [*command, '--origin', UI, '--port', str(port)],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert f'127.0.0.1:{port}' in process.stdout.readline()
        address = f'http://127.0.0.1:{port}'
        status, sealed = post(address, '/encode', plain('secret'))
        assert status == 200, sealed
        assert sealed != plain('secret')
        assert post(address, '/decode', sealed) == (200, plain('secret'))
    finally:
        process.terminate()
        process.communicate(timeout=30)


@pytest.mark.parametrize(
    ('path', 'says'),
    [
        ('payloads', 'module:attribute'),
        ('no_such_module:payloads', 'No module named'),
        ('json:payloads', 'no attribute'),
        ('json:loads', 'not a `PayloadStorage`'),
    ],
)
def test_what_is_no_storage_is_told(path: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert serve_storage(path, TOKEN, ['default'], [], host='127.0.0.1', port=0) == 1
    assert says in capsys.readouterr().err
