"""`harness-temporal codec-server`: lets the Temporal UI and CLI show payloads that are stored or encrypted.

It speaks Temporal's remote codec protocol: `POST /encode` and `POST /decode` with payloads as JSON. The UI calls it
from the browser of whoever looks, so it answers for the UI's origin only, and only with the right token. The CLI sends
one with `--codec-auth`, the UI its user's own access token if it is told to pass it on.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from email.message import Message
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

from google.protobuf import json_format
from temporalio.api.common.v1 import Payload, Payloads

from harness_temporal.cli.output import print_json, show_error
from harness_temporal.errors import ConfigurationError, HarnessError
from harness_temporal.loading import load_attribute
from harness_temporal.temporal.payloads import PayloadStorage
from harness_temporal.text import as_storable

LARGEST_REQUEST: Final = 128 * 1024 * 1024
"""Bytes of a request. Decoded payloads may come in again, to be encoded; so as much is decoded for one answer."""
_ANSWER_TIMEOUT = 60.0
_IDLE_TIMEOUT = 30.0
_BODY_TIMEOUT = 60.0
"""Seconds in which the whole body of a request has to come."""
_READ_AT_ONCE = 1 << 20
_LONGEST_MESSAGE = 500
"""Characters of an error's message: it may quote what was sent."""
_HEADERS = 'Authorization, Authorization-Extras, Content-Type, X-Namespace'
_BEARER = 'Bearer '
_PATHS = 'There are /encode and /decode.'
_logger = logging.getLogger(__name__)

Authorize: TypeAlias = Callable[[str, str], bool]
"""Whether the owner of a token may read the payloads of a namespace. Called in several threads at once."""


_Ask: TypeAlias = Callable[[str, bool, Sequence[Payload]], list[Payload]]


def shared_token(token: str) -> Authorize:
    """Let in whoever has this token.

    Raises:
        ConfigurationError: It is empty, or no header could hold it.
    """
    if not token or not token.isascii() or not token.isprintable():
        raise ConfigurationError('The token of a codec server must not be empty, and of printable ASCII characters.')

    def authorize(given: str, namespace: str) -> bool:
        return hmac.compare_digest(given.encode(errors='replace'), token.encode())

    return authorize


@dataclass(frozen=True)
class CodecServerSettings:
    """What a codec server serves, and to whom.

    Raises:
        ConfigurationError: There is no namespace, or something that is no origin.
    """

    storages: Mapping[str, PayloadStorage]
    """The payload storage of each namespace."""
    authorize: Authorize
    """Decides about each request by its bearer token: `shared_token`, or a check of the UI users' access tokens."""
    origins: Sequence[str] = ()
    """Origins of the Temporal UI, such as `https://temporal.example.com`, without a path."""

    def __post_init__(self) -> None:
        if not self.storages:
            raise ConfigurationError('A codec server needs at least one namespace.')
        for origin in self.origins:
            parts = urlsplit(origin)
            if parts.scheme not in ('http', 'https') or origin != f'{parts.scheme}://{parts.netloc}' or '*' in origin:
                raise ConfigurationError(
                    f'{origin!r} is no origin: give scheme, host and port only, such as https://temporal.example.com.'
                )


class CodecServer:
    """A codec server on its own threads. Serve it behind TLS: the token and the payloads are in its requests.

    Args:
        settings: What to serve.
        host: Address to listen on.
        port: Port to listen on; 0 takes a free one.
    """

    def __init__(self, settings: CodecServerSettings, *, host: str = '127.0.0.1', port: int = 8081) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        codecs = {namespace: storage.codec for namespace, storage in settings.storages.items()}

        def ask(namespace: str, encode: bool, payloads: Sequence[Payload]) -> list[Payload]:
            assert self._loop is not None
            codec = codecs[namespace]
            coded = codec.encode(payloads) if encode else codec.loading_at_most(LARGEST_REQUEST).decode(payloads)
            answer = asyncio.run_coroutine_threadsafe(coded, self._loop)
            try:
                return answer.result(_ANSWER_TIMEOUT)
            except TimeoutError as error:
                answer.cancel()
                reason = f'The payloads did not come from the media store in {_ANSWER_TIMEOUT:.0f} seconds.'
                raise _Refused(HTTPStatus.GATEWAY_TIMEOUT, reason) from error

        self._server = ThreadingHTTPServer((host, port), partial(_Handler, settings, ask))
        self._server.daemon_threads = True
        self.address = f'http://{host}:{self._server.server_port}'
        """Where it answers."""

    def serve(self) -> None:
        """Answer until `close` is called by another thread, or Ctrl-C."""
        # Media stores belong to one event loop, and each request has a thread of its own.
        self._loop = asyncio.new_event_loop()
        thread = threading.Thread(target=self._loop.run_forever, name='codec', daemon=True)
        thread.start()
        try:
            self._server.serve_forever()
        finally:
            self._server.server_close()
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join()
            self._loop.close()

    def close(self) -> None:
        """Stop answering."""
        self._server.shutdown()


def serve_storage(
    path: str,
    token: str,
    namespaces: Sequence[str],
    origins: Sequence[str],
    *,
    host: str,
    port: int,
    as_json: bool = False,
) -> int:
    """Serve one payload storage for all of these namespaces, and return the exit status."""
    try:
        storage = load_attribute(path, PayloadStorage)
        settings = CodecServerSettings(dict.fromkeys(namespaces, storage), shared_token(token), origins)
    except ConfigurationError as error:
        show_error(str(error), as_json=as_json)
        return 1
    return run(settings, host=host, port=port, as_json=as_json)


def run(settings: CodecServerSettings, *, host: str, port: int, as_json: bool = False) -> int:
    """Serve until Ctrl-C. Returns the process's exit status."""
    try:
        server = CodecServer(settings, host=host, port=port)
    except OSError as error:
        show_error(f'cannot listen on {host}:{port}: {error}', as_json=as_json)
        return 1
    if as_json:
        print_json({'ok': True, 'address': server.address, 'namespaces': list(settings.storages)})
    else:
        print(f'The codec server answers on {server.address} for {", ".join(settings.storages)}.', flush=True)
    with suppress(KeyboardInterrupt):
        server.serve()
    return 0


class _Refused(Exception):
    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class _Handler(BaseHTTPRequestHandler):
    server_version = 'harness-temporal'
    sys_version = ''
    protocol_version = 'HTTP/1.1'
    default_request_version = 'HTTP/1.1'
    """Of a request whose first line names none: it gets an answer with a status too."""
    timeout = _IDLE_TIMEOUT

    def __init__(self, settings: CodecServerSettings, ask: _Ask, *args: Any) -> None:
        # The base class answers the request before its constructor returns.
        self._settings = settings
        self._ask = ask
        # Of a request that ends before it has any.
        self.headers = Message()
        super().__init__(*args)

    def do_OPTIONS(self) -> None:
        """Answer a browser's preflight, which has no token."""
        self._expect_no_body()
        self._answer(HTTPStatus.NO_CONTENT, b'')

    def do_POST(self) -> None:
        """Encode or decode."""
        try:
            answer = self._coded()
        except _Refused as refused:
            self.send_error(refused.status, str(refused))
        else:
            self._answer(HTTPStatus.OK, answer)

    def do_GET(self) -> None:
        """Say that the server lives."""
        self._expect_no_body()
        if self.path == '/healthz':
            self._answer(HTTPStatus.OK, b'{}')
        else:
            self.send_error(HTTPStatus.NOT_FOUND, _PATHS)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Say what is wrong, also where the base class finds it, in the form that the UI shows."""
        status = HTTPStatus(code)
        if status == HTTPStatus.NOT_IMPLEMENTED:
            status, message = HTTPStatus.METHOD_NOT_ALLOWED, 'There are GET, OPTIONS and POST.'
        # What was not read of the request would be taken for the next one.
        self.close_connection = True
        text = as_storable(message or status.phrase)[:_LONGEST_MESSAGE]
        self._answer(status, json.dumps({'message': text}).encode())

    def _expect_no_body(self) -> None:
        if self.headers.get('Content-Length', '0') != '0' or 'Transfer-Encoding' in self.headers:
            self.close_connection = True

    def _coded(self) -> bytes:
        # The protocol wants the last part alone to count, so that a proxy may put anything in front.
        action = self.path.partition('?')[0].rpartition('/')[2]
        if action not in ('encode', 'decode'):
            raise _Refused(HTTPStatus.NOT_FOUND, _PATHS)
        namespace = self.headers.get('X-Namespace', '')
        self._check_token(namespace)
        if namespace not in self._settings.storages:
            raise _Refused(HTTPStatus.FORBIDDEN, f'The namespace {namespace[:100]!r} is not served here.')
        given = self._given()
        try:
            payloads = self._ask(namespace, action == 'encode', given.payloads)
        except HarnessError as error:
            raise _Refused(HTTPStatus.UNPROCESSABLE_ENTITY, str(error)) from error
        except _Refused:
            raise
        except Exception as error:
            _logger.exception('A request failed.')
            raise _Refused(HTTPStatus.INTERNAL_SERVER_ERROR, type(error).__name__) from error
        return json_format.MessageToJson(Payloads(payloads=payloads), indent=None).encode()

    def _check_token(self, namespace: str) -> None:
        given = self.headers.get('Authorization', '')
        if not given.startswith(_BEARER) or not self._settings.authorize(given.removeprefix(_BEARER), namespace):
            raise _Refused(HTTPStatus.UNAUTHORIZED, 'The token is missing or wrong.')

    def _given(self) -> Payloads:
        sizes = self.headers.get_all('Content-Length', [])
        if not sizes or 'Transfer-Encoding' in self.headers:
            raise _Refused(HTTPStatus.LENGTH_REQUIRED, 'The request has no `Content-Length`, or is sent in chunks.')
        size = sizes[0].lstrip('0') or '0'
        if len(sizes) > 1 or not (size.isascii() and size.isdecimal()):
            raise _Refused(HTTPStatus.BAD_REQUEST, 'The `Content-Length` is no number.')
        # Python reads no number of thousands of digits.
        if len(size) > len(str(LARGEST_REQUEST)) or int(size) > LARGEST_REQUEST:
            raise _Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f'The request has more than {LARGEST_REQUEST} bytes.')
        try:
            return json_format.Parse(self._read(int(size)), Payloads())
        except TimeoutError as error:
            raise _Refused(HTTPStatus.REQUEST_TIMEOUT, 'The body of the request did not come.') from error
        except (json_format.ParseError, UnicodeDecodeError) as error:
            raise _Refused(HTTPStatus.BAD_REQUEST, f'The request is no payloads as JSON: {error}') from error

    def _read(self, size: int) -> bytes:
        ends_at = time.monotonic() + _BODY_TIMEOUT
        body = bytearray()
        while len(body) < size and (read := self.rfile.read1(min(size - len(body), _READ_AT_ONCE))):
            body += read
            if time.monotonic() > ends_at:
                raise TimeoutError
        return bytes(body)

    def _answer(self, status: HTTPStatus, body: bytes) -> None:
        self.send_response(status)
        if self.close_connection:
            self.send_header('Connection', 'close')
        origin = self.headers.get('Origin')
        # Never another site's page, even in a browser that has a token.
        if origin is not None and origin in self._settings.origins:
            self.send_header('Access-Control-Allow-Origin', origin)
            self.send_header('Access-Control-Allow-Methods', 'POST, OPTIONS')
            self.send_header('Access-Control-Allow-Headers', _HEADERS)
            self.send_header('Access-Control-Allow-Credentials', 'true')
            self.send_header('Access-Control-Max-Age', '600')
        self.send_header('Vary', 'Origin')
        self.send_header('Cache-Control', 'no-store')
        if status == HTTPStatus.UNAUTHORIZED:
            self.send_header('WWW-Authenticate', 'Bearer')
        if status != HTTPStatus.NO_CONTENT:
            self.send_header('Content-Type', 'application/json')
            self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        if self.command != 'HEAD':
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Log to the module's logger, at a level that is off by default."""
        _logger.info(format, *args)
