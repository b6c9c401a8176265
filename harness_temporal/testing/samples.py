"""Records and messages that the tests write, with fixed times, and the values that stores get wrong."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from pydantic_ai import messages as _messages
from pydantic_ai.messages import (
    AudioUrl,
    BinaryContent,
    BinaryImage,
    CachePoint,
    Citation,
    CompactionPart,
    ContentCitationAnchor,
    DocumentUrl,
    FilePart,
    ImageUrl,
    InstructionBaselinePart,
    InstructionDeltaPart,
    InstructionPart,
    LoadCapabilityCallPart,
    LoadCapabilityReturnPart,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ModelSettingsDeltaPart,
    NativeToolCallPart,
    NativeToolReturnPart,
    NativeToolSearchCallPart,
    NativeToolSearchReturnPart,
    RetryFeedbackPart,
    RetryInfo,
    SpeechPart,
    SystemPromptPart,
    TextContent,
    TextPart,
    ThinkingPart,
    ToolAvailabilityDeltaPart,
    ToolCallPart,
    ToolReturnPart,
    ToolSearchCallPart,
    ToolSearchReturnPart,
    UploadedFile,
    UserPromptPart,
    VideoUrl,
    WebCitationSource,
)
from pydantic_ai.usage import RequestUsage

from harness_temporal.history import encode_history, since
from harness_temporal.records import (
    ContinuableSnapshot,
    EncodedSnapshot,
    ModelResponseRecord,
    RunRecord,
    StepEvent,
    ToolEffectRecord,
)

NOON = datetime(2026, 3, 1, 12, 0, 0, 123_457, tzinfo=UTC)
"""When everything happens unless a test says otherwise: the clock of these tests stands still."""

LONG_KEY = ''.join(hashlib.sha256(bytes([index])).hexdigest() for index in range(80))
"""A key of 5,120 characters that does not compress: more than an index of some databases takes."""

SEOUL = timezone(timedelta(hours=9))
LIMA = timezone(timedelta(hours=-5))

PNG = b'\x89PNG\r\n\x1a\n\x00\xff'

# --- records ---


def a_run(run_id: str = 'run-1', **fields: Any) -> RunRecord:
    """Make a run, registered under an id of its own."""
    return replace(
        RunRecord(run_id=run_id, started_at=NOON, registration_id=f'registration of {run_id}'),
        **fields,
    )


def an_event(run_id: str = 'run-1', **fields: Any) -> StepEvent:
    """Make an event without a key."""
    return replace(StepEvent(run_id=run_id, kind='model_request_started', step_index=1, timestamp=NOON), **fields)


def a_snapshot(messages: Sequence[ModelMessage] = (), run_id: str = 'run-1', **fields: Any) -> ContinuableSnapshot:
    """Make a snapshot without a key."""
    return replace(
        ContinuableSnapshot(run_id=run_id, step_index=1, messages=list(messages), timestamp=NOON),
        **fields,
    )


def an_extension(
    messages: Sequence[ModelMessage], *, base_length: int, run_id: str = 'run-1', **fields: Any
) -> EncodedSnapshot:
    """Make a snapshot that holds only what comes after the first `base_length` messages."""
    return EncodedSnapshot(
        snapshot=a_snapshot((), run_id, **fields), history=since(encode_history(messages), base_length)
    )


def a_start(run_id: str = 'run-1', **fields: Any) -> ToolEffectRecord:
    """Make the ledger entry of a call that was just started by its first attempt."""
    return replace(
        ToolEffectRecord(
            tool_call_id='call-1',
            tool_name='charge_card',
            run_id=run_id,
            status='started',
            started_at=NOON,
            call_key='key-1',
            holder='worker-a',
        ),
        **fields,
    )


def an_end(run_id: str = 'run-1', **fields: Any) -> ToolEffectRecord:
    """Make the ledger entry of a call that returned, as the holder of the first attempt writes it."""
    ended_at = NOON + timedelta(seconds=2)
    completed = a_start(run_id, status='completed', outcome='returned', value=b'"ok"', ended_at=ended_at)
    return replace(completed, **fields)


def a_response(run_id: str = 'run-1', **fields: Any) -> ModelResponseRecord:
    """Make a recorded model response."""
    return replace(ModelResponseRecord(run_id=run_id, key='request-1', body=b'{"parts":[]}'), **fields)


# --- messages ---


def asks(text: str) -> ModelRequest:
    """Make a request with a user's prompt."""
    return ModelRequest(parts=[UserPromptPart(text, timestamp=NOON)])


def says(text: str) -> ModelResponse:
    """Make a response with text."""
    return ModelResponse(parts=[TextPart(text)], timestamp=NOON)


def calls(args: Any, tool_call_id: str = 'call-1') -> ModelResponse:
    """Make a response that calls a tool."""
    return ModelResponse(parts=[ToolCallPart('tool', args, tool_call_id)], timestamp=NOON)


def returns(content: Any, tool_call_id: str = 'call-1', **fields: Any) -> ModelRequest:
    """Make a request with what a tool returned."""
    return ModelRequest(parts=[ToolReturnPart('tool', content, tool_call_id, timestamp=NOON, **fields)])


def turns(count: int, *, topic: str = 'turn') -> list[ModelMessage]:
    """Make a history of `count` messages, questions and answers."""
    return [(says if index % 2 else asks)(f'{topic} {index}') for index in range(count)]


def _request_parts() -> dict[str, Any]:
    error = {'type': 'int_parsing', 'loc': ['age', 0], 'msg': 'no integer', 'input': 'x'}
    parts: dict[str, Any] = {
        'system prompt': SystemPromptPart('Be brief.', timestamp=NOON),
        'user prompt, text': UserPromptPart('Hello', timestamp=NOON),
        'user prompt, list': UserPromptPart(
            [
                'Look at these',
                TextContent('quoted', metadata={'page': 3}),
                ImageUrl('https://example.com/a.png', force_download=True, identifier='mine'),
                AudioUrl('https://example.com/a.mp3'),
                DocumentUrl('https://example.com/a.pdf', vendor_metadata={'detail': 'low'}),
                VideoUrl('https://example.com/a.mp4'),
                BinaryContent(b'%PDF-\x00\xff', media_type='application/pdf', identifier='doc'),
                BinaryImage(PNG, media_type='image/png', vendor_metadata={'detail': 'high'}),
                UploadedFile('file-1', provider_name='openai', media_type='image/png'),
                CachePoint(),
            ],
            timestamp=NOON,
        ),
        'tool search return': ToolSearchReturnPart(
            content={'discovered_tools': [{'name': 'charge_card'}]}, tool_call_id='search', timestamp=NOON
        ),
        'capability load return': LoadCapabilityReturnPart(
            content={'message': 'loaded'}, tool_call_id='load', timestamp=NOON
        ),
        'tool return with files': ToolReturnPart(
            'tool',
            ['see', BinaryImage(PNG, media_type='image/png'), ImageUrl('https://example.com/a.png'), {'page': 1}],
            'call-1',
            metadata={'cost': 2.5},
            timestamp=NOON,
        ),
        'retried with errors': ToolReturnPart(
            'tool',
            [error],
            'call-1',
            outcome='retried',
            retry=RetryInfo(cause='validation_error', attempt=1, max_retries=3),
            timestamp=NOON,
        ),
        'retry feedback, text': RetryFeedbackPart(
            'Say it again.', retry=RetryInfo(cause='model_retry', attempt=2, max_retries=2), timestamp=NOON
        ),
        'retry feedback, errors': RetryFeedbackPart(
            [{'type': 'int_parsing', 'loc': ('age', 0), 'msg': 'no integer', 'input': 'x'}],
            retry=RetryInfo(cause='validation_error'),
            timestamp=NOON,
        ),
        'tool availability delta': ToolAvailabilityDeltaPart(tools_added=['refund'], tool_call_id='call-1'),
        'model settings delta': ModelSettingsDeltaPart(settings={'thinking': 'high'}, top_level=True),
        'instruction delta': InstructionDeltaPart(id=None, content='Be briefer.', base_hash='0' * 64),
        'instruction baseline': InstructionBaselinePart(instructions=[InstructionPart('Be brief.', dynamic=True)]),
        'request compaction': CompactionPart('What was said so far.', metadata={'by': 'me'}),
        'user speech': SpeechPart(
            speaker='user', transcript='hm', audio=BinaryContent(b'\x00\x01', media_type='audio/wav')
        ),
    }
    for outcome in ('success', 'failed', 'denied', 'interrupted', 'retried'):
        parts[f'tool return, {outcome}'] = ToolReturnPart('tool', 'text', 'call-1', outcome=outcome, timestamp=NOON)
    if newer := getattr(_messages, 'CapabilityLoadDeltaPart', None):
        parts['capability load delta'] = newer(loaded=['refunds'], tool_call_id='call-1')
    return parts


def _response_parts() -> dict[str, Any]:
    details: dict[str, Any] = {'provider_name': 'anthropic', 'provider_details': {'a': [1, None, {'b': True}]}}
    source = WebCitationSource('https://example.com', title='Example', excerpts=['quoted'])
    return {
        'text': TextPart('Hi', id='text-1', **details),
        'cited text': TextPart('Hi', citations=[Citation([source], anchor=ContentCitationAnchor(start=0, end=2))]),
        'thinking': ThinkingPart('hm', id='thought-1', signature='c2ln', **details),
        'redacted thinking': ThinkingPart('', id='redacted_thinking', signature='c2ln', provider_name='anthropic'),
        'tool call, mapping': ToolCallPart('tool', {'amount': 3, 'to': None}, 'call-1', id='fc-1', **details),
        'tool call, text': ToolCallPart('tool', '{"amount": 3 }', 'call-1'),
        'tool call, malformed': ToolCallPart('tool', '{"amount": ', 'call-1'),
        'tool call, nothing': ToolCallPart('tool', None, 'call-1'),
        'tool search call': ToolSearchCallPart(args={'queries': ['card']}, tool_call_id='search'),
        'capability load call': LoadCapabilityCallPart(args={'id': 'refunds'}, tool_call_id='load'),
        'native tool call': NativeToolCallPart('web_search', {'query': 'x'}, 'native-1', **details),
        'native tool return': NativeToolReturnPart('web_search', {'hits': 1}, 'native-1', timestamp=NOON, **details),
        'native tool search call': NativeToolSearchCallPart(args={'queries': ['card']}, tool_call_id='search'),
        'native tool search return': NativeToolSearchReturnPart(
            content={'discovered_tools': []}, tool_call_id='search', timestamp=NOON
        ),
        'file': FilePart(BinaryImage(PNG, media_type='image/png'), id='image-1', **details),
        'compaction': CompactionPart(None, id='compaction-1', **details),
        'speech': SpeechPart(speaker='assistant', transcript='hm', interrupted_at_ms=120),
    }


def _messages_of_every_kind() -> dict[str, ModelMessage]:
    messages: dict[str, ModelMessage] = {
        'bare request': ModelRequest(parts=[]),
        'request, every field': ModelRequest(
            parts=[UserPromptPart('x', timestamp=NOON)],
            timestamp=NOON,
            instructions='Be brief.',
            run_id='run-1',
            conversation_id='conversation',
            metadata={'a': [1, {'b': None}]},
            state='interrupted',
        ),
        'bare response': ModelResponse(parts=[], timestamp=NOON),
        'response, every field': ModelResponse(
            parts=[TextPart('x')],
            usage=RequestUsage(input_tokens=2**40, output_tokens=2, cache_read_tokens=1, details={'reasoning': 7}),
            model_name='model-1',
            timestamp=NOON,
            provider_name='openai',
            provider_url='https://example.com',
            provider_details={'finish_reason': 'stop', 'list': [1, 2.5]},
            provider_response_id='response-1',
            finish_reason='stop',
            run_id='run-1',
            conversation_id='conversation',
            metadata={'a': 1},
        ),
    }
    messages |= {name: ModelRequest(parts=[part]) for name, part in _request_parts().items()}
    messages |= {name: ModelResponse(parts=[part], timestamp=NOON) for name, part in _response_parts().items()}
    return messages


MESSAGES: Mapping[str, ModelMessage] = _messages_of_every_kind()
"""A message for every kind of part that Pydantic AI has, by name. Each reads back equal."""


# --- values ---

TEXTS: Mapping[str, str] = {
    'NUL': 'a\x00b',
    'only NUL': '\x00',
    'control characters': '\x01\x07\x1b\x7f\x85',
    'line ends': 'a\nb\r\nc\rd\u2028e\u2029f',
    'outer blanks': '  \t text \n',
    'lone low surrogate': 'caf\udce9.txt',
    'lone high surrogate': '\ud83d',
    'surrogates in wrong order': '\ude00\ud83d',
    'private use': '\uf8ff',
    'looks escaped': '\uf8ff0000 \uf8ffd800 \\u0000 \\x00 %00',
    'looks escaped and needs it': '\uf8ff0000\x00\ud800',
    'replacement character': '\ufffd',
    'beyond the BMP': '😀\U0010ffff',
    'NFC': 'é',
    'NFD': 'e\u0301',
    'right to left': '\u202eabc\u202c שלום',
    'byte order mark': '\ufeffx',
    'quotes': '\'"`"; DROP TABLE runs; --',
    'placeholders': '$1 %s ? :name {0} {{x}} %(a)s',
    'operators': '$set',
    'dots': 'x.y..z',
    'JSON': '{"kind": "binary", "data": ""}',
    'looks like a number': '1e400',
    'long': 'ab😀' * 40_000,
}
"""Strings that some encoder, database or driver changes or refuses."""

KEYS: Mapping[str, str] = {
    **{name: text for name, text in TEXTS.items() if name != 'long'},
    'empty': '',
    'injection': "a') OR 1=1 --",
    'dunder': '__class__',
    'kind': 'kind',
}
"""Strings for the keys of mappings."""

VALUES: Mapping[str, Any] = {
    'None': None,
    'true': True,
    'zero': 0,
    'minus zero': -0.0,
    'one as float': 1.0,
    'beyond 2**53': 2**53 + 1,
    '2**63': 2**63,
    '-2**63 - 1': -(2**63) - 1,
    '2**70': 2**70,
    'huge integer': 10**300,
    'NaN': math.nan,
    'infinities': [math.inf, -math.inf],
    'smallest float': 5e-324,
    'largest float': 1.7976931348623157e308,
    'float digits': 0.1 + 0.2,
    'empty text': '',
    'empty list': [],
    'empty mapping': {},
    'nested': {'a': [{'b': [None, [1, 2.5, 'x', {'c': {}}]]}]},
    'deep': {'a': {'a': {'a': {'a': {'a': {'a': {'a': {'a': {'a': {'a': [[[[[[[[1]]]]]]]]}}}}}}}}}},
    'many keys': {f'key {index}': index for index in range(300)},
    'key order': {'b': 1, 'a': 2, 'C': 3, '1': 4, '': 5},
    'operator keys': {'$set': 1, 'x.y': 2, '$oid': '0' * 24, '$numberLong': '5', '__proto__': 1},
    'NUL in a key': {'a\x00b': 1},
    'lone surrogate in a key': {'\udce9': 1},
    'two lone surrogates as keys': dict.fromkeys(['\udce9', '\udcea'], 1),
    'lone surrogate beside NaN': ['\udce9', math.nan],
    'private use in a key': {'\uf8ff006bind': 1, 'kind': 2},
    'media marker, missing': {'$media': f'sha256:{"0" * 64}', 'uri': f'media+sha256://{"0" * 64}'},
    'media marker, own uri': {'__media__': True, 'uri': 'https://example.com', 'media_type': 'image/png'},
    'binary marker': {'kind': 'binary', 'data': 'eA==', 'media_type': 'image/png'},
    'binary marker, bad': {'kind': 'binary', 'data': 7},
    'image marker': {'kind': 'image-url', 'url': 'https://example.com/a.png'},
    'upload marker': {'kind': 'uploaded-file', 'file_id': 'x', 'provider_name': 'openai'},
    'nested marker': [{'result': {'kind': 'document-url', 'url': 'https://example.com/a.pdf', 'extra': 1}}],
    'other kind': {'kind': 'invoice', 'total': 3},
    'message marker': {'kind': 'request', 'parts': [{'part_kind': 'user-prompt', 'content': 'x'}]},
    'looks like base64': 'eHg=',
    'looks like a time': '2026-03-01T12:00:00Z',
}
"""Values that JSON has a form for (NaN and infinities counted in), and that somebody's codec turns into another."""


def same(one: object, other: object) -> bool:
    """Whether two values, or messages with them, are the same in type, order and sign; NaN is the same as NaN."""
    return _shown(one) == _shown(other)


def _shown(value: object) -> str:
    # Pydantic has a UTC of its own, which equals the standard one.
    return repr(value).replace('TzInfo(0)', 'datetime.timezone.utc')
