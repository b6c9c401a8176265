"""Whatever is sent to a codec server, it answers at once, shortly, with what is wrong; and serves the next one."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from google.protobuf import json_format
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from temporalio.api.common.v1 import Payload, Payloads

from harness_temporal.cli import codec_server
from harness_temporal.cli.codec_server import CodecServer, CodecServerSettings, shared_token
from harness_temporal.media import DiskMediaStore
from harness_temporal.temporal.payloads import Key, KeyRing, PayloadStorage
from harness_temporal.temporal.payloads.references import ENCODING, Reference, without_data
from tests.faults.mutating import changed, damaged

FUZZ = settings(max_examples=100, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
PROMPT = 10.0
"""Seconds in which an answer has to be there, however busy the machine is. The server's own limits are longer."""
LONGEST_MESSAGE = 500

TOKEN, ORIGIN = b'right-token', b'https://temporal.example.com'
RIGHT: dict[bytes, bytes] = {b'Authorization': b'Bearer ' + TOKEN, b'X-Namespace': b'default', b'Origin': ORIGIN}
PLAIN = Payload(metadata={ENCODING: b'json/plain'}, data=b'"' + b'text ' * 2_000 + b'"')


def as_json(payloads: Sequence[Payload]) -> bytes:
    return json_format.MessageToJson(Payloads(payloads=payloads), indent=None).encode()


class Served:
    """A codec server with keys and a media store, and payloads that it made."""

    def __init__(self, folder: Path) -> None:
        self.media = DiskMediaStore(folder)
        self.storage = PayloadStorage(self.media, keys=KeyRing.of(Key.generate('k1')))
        self.open_storage = PayloadStorage(self.media)
        storages = {'default': self.storage, 'open': self.open_storage}
        allowed = CodecServerSettings(storages, shared_token(TOKEN.decode()), [ORIGIN.decode()])
        self.server = CodecServer(allowed, port=0)
        self.thread = threading.Thread(target=self.server.serve)
        self.encoded = as_json(asyncio.run(self.storage.codec.encode([PLAIN])))
        self.stored = as_json(asyncio.run(self.open_storage.codec.encode([PLAIN])))

    def send(self, sent: bytes, *, end: bool = True) -> bytes:
        """Send bytes, and return all that is answered until the server closes the connection."""
        port = urlsplit(self.server.address).port
        with socket.create_connection(('127.0.0.1', port), timeout=PROMPT) as connection:
            connection.sendall(sent)
            if end:
                connection.shutdown(socket.SHUT_WR)
            answered = b''
            # It may not wait for the rest of what it refuses.
            with suppress(ConnectionResetError):
                while received := connection.recv(1 << 20):
                    answered += received
            return answered

    def ask(self, body: bytes, **changes: bytes) -> tuple[int, Any]:
        """Have a body decoded, and return the one answer."""
        headers = {**RIGHT, b'Content-Length': str(len(body)).encode()}
        headers |= {name.replace('_', '-').encode(): value for name, value in changes.items()}
        [answer] = answers(self.send(request(b'POST', b'/decode', [*headers.items()], body)))
        return answer


@pytest.fixture(scope='module')
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    made = Served(tmp_path_factory.mktemp('pieces'))
    made.thread.start()
    yield made
    made.server.close()
    made.thread.join()


def request(method: bytes, target: bytes, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> bytes:
    lines = [b'%b %b HTTP/1.1' % (method, target), *(b'%b: %b' % header for header in headers)]
    return b'\r\n'.join([*lines, b'', body])


def answers(sent: bytes, *, with_bodies: bool = True) -> list[tuple[int, Any]]:
    """Read all answers on a connection. What follows a request's body is a further request."""
    found: list[tuple[int, Any]] = []
    while sent:
        head, separator, rest = sent.partition(b'\r\n\r\n')
        status = re.match(rb'HTTP/1\.1 (\d{3}) ', head)
        assert status, sent
        assert separator, sent
        length = re.search(rb'\r\nContent-Length: (\d+)', head)
        size = int(length[1]) if length and with_bodies else 0
        assert len(rest) >= size
        found.append((int(status[1]), json.loads(rest[:size]) if size else None))
        sent = rest[size:]
    return found


def check(sent: bytes, *, with_bodies: bool = True) -> list[int]:
    """Check what holds of all answers, and return their statuses."""
    found = answers(sent, with_bodies=with_bodies)
    for status, content in found:
        assert status in (200, 204) or 400 <= status < 500, content
        if status >= 400 and with_bodies:
            assert [*content] == ['message']
            assert 0 < len(content['message']) <= LONGEST_MESSAGE
    return [status for status, _ in found]


def is_well(served: Served) -> None:
    """Check that the server still does what it is for."""
    status, content = served.ask(served.encoded)
    assert status == 200
    assert json_format.ParseDict(content, Payloads()).payloads[0] == PLAIN


HEADER_BYTES = st.binary(max_size=40).map(lambda text: text.replace(b'\r', b'').replace(b'\n', b''))
SIZES = st.sampled_from(
    [b'', b'-1', b'+1', b' 7 ', b'0x10', b'1_0', b'1.5', b'\xb2', b'9' * 12, b'9' * 5_000, b'0' * 5_000 + b'2', b'1, 1']
)
HEADERS = st.one_of(
    st.tuples(st.sampled_from([b'Content-Length']), SIZES),
    st.tuples(st.sampled_from([*RIGHT, b'Expect', b'Connection', b'Content-Type', b'Host']), HEADER_BYTES),
    st.sampled_from([(b'Transfer-Encoding', b'chunked'), (b'Expect', b'100-continue'), (b'Connection', b'keep-alive')]),
    st.tuples(HEADER_BYTES, HEADER_BYTES),
)


@FUZZ
@given(data=st.data())
def test_body(served: Served, data: st.DataObject) -> None:
    valid = data.draw(st.sampled_from([served.encoded, served.stored]))
    document = data.draw(changed(json.loads(valid)))
    body = data.draw(damaged(valid) | st.binary(max_size=60) | st.just(json.dumps(document).encode()))
    path = data.draw(st.sampled_from([b'/decode', b'/encode']))
    namespace = data.draw(st.sampled_from([b'default', b'open']))
    headers = {**RIGHT, b'X-Namespace': namespace, b'Content-Length': str(len(body)).encode()}
    assert check(served.send(request(b'POST', path, [*headers.items()], body)))
    is_well(served)


@FUZZ
@given(
    method=st.sampled_from([b'POST', b'POST', b'GET', b'OPTIONS', b'PUT', b'HEAD', b'X' * 100]),
    target=st.sampled_from(
        [b'/decode', b'/encode', b'/healthz', b'*', b'http://[/decode', b'//[/decode', b'/%ff?#', b'/\xff', b'/' * 900]
    ),
    right=st.sets(st.sampled_from([*RIGHT])),
    headers=st.lists(HEADERS, max_size=4),
    size=st.integers(0, 40) | st.none(),
    body=st.binary(max_size=40),
)
def test_request(
    served: Served,
    method: bytes,
    target: bytes,
    right: set[bytes],
    headers: list[tuple[bytes, bytes]],
    size: int | None,
    body: bytes,
) -> None:
    length = [] if size is None else [(b'Content-Length', str(size).encode())]
    given = [*((name, RIGHT[name]) for name in sorted(right)), *length, *headers]
    answered = served.send(request(method, target, given, body))
    assert check(answered.removeprefix(b'HTTP/1.1 100 Continue\r\n\r\n'), with_bodies=method != b'HEAD')
    is_well(served)


@FUZZ
@example(b'GET\r\n\r\n')
@example(b'POST /decode HTTP/1.1\r\n' + b'a: b\r\n' * 101 + b'\r\n')
@example(b'POST /decode HTTP/1.1\r\nX: ' + b'x' * 70_000 + b'\r\n\r\n')
@example(b'POST /' + b'x' * 70_000 + b' HTTP/1.1\r\n\r\n')
@given(st.binary(max_size=80) | damaged(request(b'POST', b'/decode', [*RIGHT.items()], b'{}')))
def test_bytes(served: Served, sent: bytes) -> None:
    check(served.send(sent))
    is_well(served)


# --- what fuzzing does not find, or what it found ---


@pytest.mark.parametrize(
    ('headers', 'status'),
    [
        ([(b'Content-Length', b'9' * 5_000)], 413),
        ([(b'Content-Length', b'1')] * 2, 400),
        ([(b'Content-Length', b'two')], 400),
        ([], 411),
        ([(b'Content-Length', b'2'), (b'Transfer-Encoding', b'chunked')], 411),
    ],
    ids=['endless number', 'twice', 'word', 'none', 'chunks'],
)
def test_length_of_a_body(served: Served, headers: list[tuple[bytes, bytes]], status: int) -> None:
    answered = served.send(request(b'POST', b'/decode', [*RIGHT.items(), *headers], b'{}'))
    assert check(answered) == [status]


def test_address_that_cannot_be_split(served: Served) -> None:
    headers = [*RIGHT.items(), (b'Content-Length', b'2')]
    assert check(served.send(request(b'POST', b'http://[/decode', headers, b'{}'))) == [200]


@pytest.mark.parametrize('method', [b'GET', b'OPTIONS'])
def test_body_that_is_not_read_is_no_further_request(served: Served, method: bytes) -> None:
    hidden = request(b'POST', b'/decode', [*RIGHT.items(), (b'Content-Length', b'2')], b'{}')
    headers = [(b'Content-Length', str(len(hidden)).encode())]
    assert len(check(served.send(request(method, b'/healthz', headers, hidden)))) == 1


def test_error_that_quotes_what_was_sent_is_short(served: Served) -> None:
    status, content = served.ask(b'{"%b": 1}' % (b'x' * 100_000))
    assert status == 400
    assert 'xxx' in content['message']
    assert len(content['message']) <= LONGEST_MESSAGE


def test_deep_json(served: Served) -> None:
    assert served.ask(b'[' * 200_000)[0] == 400
    assert served.ask(b'{"payloads":' * 50_000)[0] == 400


def test_body_that_does_not_come(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec_server._Handler, 'timeout', 0.05)  # pyright: ignore[reportPrivateUsage]
    asked = request(b'POST', b'/decode', [*RIGHT.items(), (b'Content-Length', b'9')], b'{')
    assert check(served.send(asked, end=False)) == [408]


def test_body_that_comes_too_slowly(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec_server, '_BODY_TIMEOUT', 0.0)
    asked = request(b'POST', b'/decode', [*RIGHT.items(), (b'Content-Length', b'9')], b'{')
    assert check(served.send(asked, end=False)) == [408]


def test_store_that_does_not_answer(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    cancelled = threading.Event()

    async def never(uri: str) -> bytes:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        raise AssertionError

    # The server's own storage has what it encoded in its cache.
    [encoded] = asyncio.run(PayloadStorage(served.media).codec.encode([Payload(data=b'other ' * 2_000)]))
    monkeypatch.setattr(served.media, 'get', never)
    monkeypatch.setattr(codec_server, '_ANSWER_TIMEOUT', 0.05)
    status, content = served.ask(as_json([encoded]), X_Namespace=b'open')
    assert status == 504
    assert 'media store' in content['message']
    assert cancelled.wait(PROMPT)


# --- a short payload that stands for much ---


def referring(root: bytes, *, depth: int, size: int) -> bytes:
    return as_json([Reference(depth, size, root, without_data(PLAIN)).to_payload()])


def test_nodes_that_repeat_a_name_stand_for_no_more_than_is_said(served: Served) -> None:
    names: list[bytes] = []
    piece = b'x' * 1_000
    for _ in range(8):
        asyncio.run(served.media.put(piece))
        names.append(hashlib.sha256(piece).digest())
        piece = names[-1] * 1_000
    # 10^21 names, if they were followed.
    status, content = served.ask(referring(names[-1], depth=7, size=10_000), X_Namespace=b'open')
    assert (status, 'leads to more than' in content['message']) == (422, True)
    # As few names as there may be, of a thousand bytes each.
    few = names[0] * 4
    asyncio.run(served.media.put(few))
    refers = referring(hashlib.sha256(few).digest(), depth=1, size=3_999)
    status, content = served.ask(refers, X_Namespace=b'open')
    assert (status, 'leads to more than' in content['message']) == (422, True)


def test_one_answer_has_no_more_than_a_request_may(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec_server, 'LARGEST_REQUEST', 25_000)
    two = json_format.Parse(served.encoded, Payloads()).payloads[0]
    assert served.ask(as_json([two] * 2))[0] == 200
    status, content = served.ask(as_json([two] * 3))
    assert (status, 'too much for one answer' in content['message']) == (422, True)
    # It is about one request, not all of them.
    assert served.ask(as_json([two] * 2))[0] == 200
