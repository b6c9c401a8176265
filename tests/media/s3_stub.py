"""A server that answers as it is told and remembers what it was asked: what a real S3 does not do at will."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

from harness_temporal.media.s3 import S3MediaStore


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    """With names in lower case."""
    body: bytes

    @property
    def operation(self) -> str:
        """The method, and what it is about."""
        about = ['bucket'] if self.method == 'HEAD' and self.path == '/bucket' else []
        return ' '.join([self.method, *about, *sorted(self.query.keys() & {'uploads', 'uploadId', 'partNumber'})])


@dataclass(frozen=True)
class Reply:
    status: int = 200
    body: bytes = b''
    headers: Mapping[str, str] = field(default_factory=dict)
    missing: int = 0
    """How many bytes fewer are sent than the headers announce."""


def refusal(status: int, code: str) -> Reply:
    """Refuse as S3 does."""
    return Reply(status, f'<Error><Code>{code}</Code><Message>told to</Message></Error>'.encode())


def present(size: int, *, age: int = 0, **metadata: str) -> Reply:
    """Say that an object is there whose last put was so many minutes ago."""
    headers = {
        'Content-Length': str(size),
        'Last-Modified': f'Sun, 05 Jan 2020 10:{30 - age:02}:00 GMT',
        'Date': 'Sun, 05 Jan 2020 10:30:00 GMT',
        **{f'X-Amz-Meta-{key}': value for key, value in metadata.items()},
    }
    return Reply(200, b'', headers)


Answer = Callable[[Request], Reply | None]
DEFAULT: Mapping[str, Reply] = {
    'HEAD': Reply(404),
    'POST uploads': Reply(
        200, b'<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>'
    ),
    'PUT partNumber uploadId': Reply(200, headers={'ETag': '"e"'}),
    'POST uploadId': Reply(200, b'<CompleteMultipartUploadResult><ETag>"e"</ETag></CompleteMultipartUploadResult>'),
    'DELETE uploadId': Reply(204),
}


class Stub:
    """An S3 without objects that takes everything. `answer` may say otherwise, and may block: it has its own thread."""

    def __init__(self, port: int) -> None:
        self.endpoint = f'http://127.0.0.1:{port}'
        self.requests: list[Request] = []
        self.connections = 0
        """How many were ever opened."""
        self.open_connections = 0
        self.broken_bodies = 0
        """How many requests ended in the middle."""
        self.answer: Answer = lambda request: None
        self.released = Event()
        """For answers to wait for; set at the end of the test in any case."""

    def store(self, **settings: Any) -> S3MediaStore:
        return S3MediaStore(
            'bucket',
            **{
                'endpoint': self.endpoint,
                'region': 'us-east-1',
                'access_key_id': 'key',
                'secret_access_key': 'secret',
                **settings,
            },
        )

    def operations(self) -> list[str]:
        return [request.operation for request in self.requests]

    def reply(self, request: Request) -> Reply:
        self.requests.append(request)
        return self.answer(request) or DEFAULT.get(request.operation, Reply())


@contextmanager
def stub_server() -> Iterator[Stub]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = 'HTTP/1.1'

        def setup(self) -> None:
            stub.connections += 1
            stub.open_connections += 1
            super().setup()

        def finish(self) -> None:
            super().finish()
            stub.open_connections -= 1

        def handle(self) -> None:
            # Clients go away in the middle of anything here.
            try:
                super().handle()
            except ConnectionError:
                self.close_connection = True

        def answer(self) -> None:
            url = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(url.query, keep_blank_values=True).items()}
            headers = {name.lower(): value for name, value in self.headers.items()}
            size = int(headers.get('content-length', 0))
            body = self.rfile.read(size)
            if len(body) < size:
                stub.broken_bodies += 1
                self.close_connection = True
                return
            reply = stub.reply(Request(self.command, url.path, query, headers, body))
            self.send_response_only(reply.status)
            for name, value in {'Content-Length': str(len(reply.body)), **reply.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(reply.body[: len(reply.body) - reply.missing])
            if reply.missing:
                self.close_connection = True

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = answer

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(('127.0.0.1', 0), Handler)
    server.daemon_threads = True
    stub = Stub(server.server_address[1])
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield stub
    finally:
        stub.released.set()
        server.shutdown()
        thread.join()
        # Not `server_close`, which would wait for connections that stay open.
        server.socket.close()


async def until(condition: Callable[[], bool], *, timeout: float = 20.0) -> None:
    """Wait for what another thread brings about."""
    async with asyncio.timeout(timeout):
        while not condition():  # noqa: ASYNC110 - another thread has no `asyncio.Event` to set
            await asyncio.sleep(0.005)
