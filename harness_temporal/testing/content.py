"""Fidelity: text, numbers, bytes and look-alikes come back as they were given, or the save is refused."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import pytest
from pydantic_ai.messages import (
    BinaryContent,
    BinaryImage,
    ImageUrl,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextContent,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from harness_temporal.errors import NotStorableError
from harness_temporal.stores.protocol import StepStore
from harness_temporal.testing.base import StoreTests
from harness_temporal.testing.samples import (
    KEYS,
    NOON,
    PNG,
    TEXTS,
    VALUES,
    a_response,
    a_run,
    a_snapshot,
    an_end,
    an_event,
    an_extension,
    asks,
    calls,
    returns,
    same,
    says,
)


class _Colour(Enum):
    RED = 'red'


_CONVERTED: dict[str, tuple[Any, Any]] = {
    'tuple': ((1, (2, 'x')), [1, [2, 'x']]),
    'set': ({7}, [7]),
    'integer key': ({1: 'a'}, {'1': 'a'}),
    'bytes': (b'\xff\x01', '_wE='),
    'decimal': (Decimal('1.10'), '1.10'),
    'datetime': (datetime(2026, 3, 1, tzinfo=UTC), '2026-03-01T00:00:00Z'),
    'date': (date(2026, 3, 1), '2026-03-01'),
    'duration': (timedelta(hours=1), 'PT1H'),
    'UUID': (UUID(int=1), '00000000-0000-0000-0000-000000000001'),
    'path': (Path('/srv/x'), '/srv/x'),
    'enumeration': (_Colour.RED, 'red'),
}
"""Values that JSON has no form for, and the form that Pydantic AI gives them, which is what the model was told."""

_text = pytest.mark.parametrize('text', TEXTS.values(), ids=TEXTS)
_key = pytest.mark.parametrize('key', KEYS.values(), ids=KEYS)
_value = pytest.mark.parametrize('value', VALUES.values(), ids=VALUES)


async def _round_trip(store: StepStore, messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    await store.save_snapshot(a_snapshot(messages))
    (read,) = await store.list_snapshots(run_id='run-1')
    return read.messages


def _with_text(text: str) -> list[ModelMessage]:
    """Make messages that hold `text` in one place each: elsewhere in the message it could change how it is stored."""
    prompt, answer = UserPromptPart('x', timestamp=NOON), TextPart('x')
    return [
        asks(text),
        says(text),
        calls(text),
        calls({}, text),
        returns(text),
        returns('x', text),
        ModelRequest(parts=[prompt], instructions=text),
        ModelRequest(parts=[UserPromptPart([text, 'x'], timestamp=NOON)]),
        ModelRequest(parts=[UserPromptPart([TextContent(text)], timestamp=NOON)]),
        ModelRequest(parts=[ToolReturnPart(text, 'x', 'call-1', timestamp=NOON)]),
        ModelResponse(parts=[ToolCallPart(text, {}, 'call-1')], timestamp=NOON),
        ModelResponse(parts=[answer], timestamp=NOON, model_name=text),
    ]


def _with_value(value: Any) -> list[ModelMessage]:
    """Make messages that hold `value`, a mapping or list, in one place each."""
    prompt, answer = UserPromptPart('x', timestamp=NOON), TextPart('x')
    messages: list[ModelMessage] = [
        returns(value),
        returns('x', metadata=value),
        ModelRequest(parts=[UserPromptPart([TextContent('x', metadata=value)], timestamp=NOON)]),
    ]
    if isinstance(value, dict):
        details = cast(dict[str, Any], value)
        file = BinaryContent(b'x', media_type='text/x', vendor_metadata=details, identifier='file')
        messages += [
            calls(details),
            ModelRequest(parts=[prompt], metadata=details),
            ModelResponse(parts=[answer], timestamp=NOON, metadata=details),
            ModelResponse(parts=[answer], timestamp=NOON, provider_details=details),
            ModelResponse(parts=[TextPart('x', provider_name='x', provider_details=details)], timestamp=NOON),
            ModelRequest(parts=[UserPromptPart([file], timestamp=NOON)]),
        ]
    return messages


async def _returned(store: StepStore, content: Any, **fields: Any) -> Any:
    """Save what a tool returned, and return the part that is read."""
    (message,) = await _round_trip(store, [returns(content, **fields)])
    (part,) = message.parts
    assert isinstance(part, ToolReturnPart)
    return part


class ContentConformance(StoreTests):
    """What may be inside of records and messages."""

    # --- text ---

    @_text
    async def test_text_of_a_run_reads_back_and_is_found(self, store: StepStore, text: str) -> None:
        run = a_run(
            conversation_id=text, parent_run_id=text, agent_name=text, registration_id=text, metadata={'text': text}
        )
        await store.register_run(run)
        await store.register_run(run)
        await store.register_run(a_run('run-2'))
        assert await store.get_run(run_id='run-1') == run
        assert await store.list_runs(conversation_id=text) == [run]
        assert await store.list_runs(parent_run_id=text) == [run]

    @_text
    async def test_text_of_an_event_reads_back(self, store: StepStore, text: str) -> None:
        event = an_event(
            conversation_id=text,
            parent_run_id=text,
            agent_name=text,
            tool_call_id=text,
            tool_name=text,
            error=text,
            metadata={'text': text},
        )
        await store.append_event(event)
        assert await store.list_events(run_id='run-1') == [event]

    @_text
    async def test_text_of_an_effect_reads_back_and_is_found(self, store: StepStore, text: str) -> None:
        effect = an_end(
            tool_call_id=text, tool_name=text, idempotency_key=text, effect_summary=text, holder=text, error=text
        )
        await store.record_tool_effect(effect)
        assert await store.list_tool_effects(run_id='run-1') == [effect]
        assert await store.get_tool_effect(run_id='run-1', tool_call_id=text) == effect

    @_text
    async def test_text_of_a_snapshot_reads_back(self, store: StepStore, text: str) -> None:
        snapshot = a_snapshot([asks('x')], conversation_id=text, parent_run_id=text, agent_name=text)
        await store.save_snapshot(snapshot)
        assert await store.list_snapshots(run_id='run-1') == [snapshot]

    @_text
    async def test_text_anywhere_in_a_message_reads_back(self, store: StepStore, text: str) -> None:
        messages = [*_with_text(text), *_with_value({'text': text}), *_with_value([text])]
        assert await _round_trip(store, messages) == messages

    @_key
    async def test_key_of_a_mapping_reads_back(self, store: StepStore, key: str) -> None:
        await store.commit([a_run(metadata={key: 'value'}), an_event(metadata={key: 'value', 'other': ''})])
        (run,) = await store.list_runs()
        (event,) = await store.list_events(run_id='run-1')
        assert run.metadata == {key: 'value'}
        assert event.metadata == {key: 'value', 'other': ''}

    @_key
    async def test_key_anywhere_in_a_message_reads_back(self, store: StepStore, key: str) -> None:
        messages = [*_with_value({key: 1}), *_with_value({'a': [{key: {key: None}}]})]
        assert await _round_trip(store, messages) == messages

    async def test_order_of_metadata_does_not_matter_but_all_of_it_is_there(self, store: StepStore) -> None:
        metadata = {f'{key} {index}': text for key in KEYS.values() for index, text in enumerate(('', 'x'))}
        await store.register_run(a_run(metadata=metadata))
        (run,) = await store.list_runs()
        assert run.metadata == metadata

    # --- values of tools ---

    @_value
    async def test_value_that_a_tool_returned_reads_back(self, store: StepStore, value: Any) -> None:
        assert same((await _returned(store, value)).content, value)

    @_value
    async def test_value_inside_of_what_a_tool_returned_reads_back(self, store: StepStore, value: Any) -> None:
        value = {'rows': [value, {'value': value}]}
        assert same((await _returned(store, value)).content, value)

    @_value
    async def test_value_in_metadata_of_a_tool_reads_back(self, store: StepStore, value: Any) -> None:
        assert same((await _returned(store, 'x', metadata=value)).metadata, value)

    @_value
    async def test_value_anywhere_in_a_message_reads_back(self, store: StepStore, value: Any) -> None:
        messages = _with_value({'value': value})
        assert same(await _round_trip(store, messages), messages)

    @pytest.mark.parametrize('args', ['{"a": ', '', ' {"a":1}\n', '{"a": 1, "a": 2}', '[1]', '{"a": NaN}', '"\\ud800"'])
    async def test_arguments_that_are_text_are_kept_character_by_character(self, store: StepStore, args: str) -> None:
        (message,) = await _round_trip(store, [calls(args)])
        (part,) = message.parts
        assert isinstance(part, ToolCallPart)
        assert part.args == args

    async def test_nan_and_infinities_do_not_become_null(self, store: StepStore) -> None:
        part = await _returned(store, {'rates': [math.nan, math.inf, -math.inf, None]})
        nan, *others = part.content['rates']
        assert math.isnan(nan)
        assert others == [math.inf, -math.inf, None]

    @pytest.mark.parametrize(('value', 'form'), _CONVERTED.values(), ids=_CONVERTED)
    async def test_value_that_json_has_no_form_for_reads_back_as_its_json(
        self, store: StepStore, value: Any, form: Any
    ) -> None:
        messages = [returns(value), returns({'value': value}), returns([value]), returns('x', metadata={'v': value})]
        assert await _round_trip(store, messages) == [
            returns(form),
            returns({'value': form}),
            returns([form]),
            returns('x', metadata={'v': form}),
        ]

    async def test_metadata_of_a_tool_return_reads_back_as_its_json(self, store: StepStore) -> None:
        metadata = {'t': (1, 2), 1: 'a', 'when': datetime(2026, 3, 1, tzinfo=UTC)}
        content: list[Any] = ['value', BinaryImage(PNG, media_type='image/png')]
        part = await _returned(store, content, metadata=metadata)
        assert part.content == content
        assert part.metadata == {'t': [1, 2], '1': 'a', 'when': '2026-03-01T00:00:00Z'}

    @pytest.mark.parametrize('value', [{1: 'a', '1': 'b'}, {None: 1, 'None': 2}, {'rows': [{2: 'a', '2': 'b'}]}])
    async def test_mapping_whose_keys_become_one_is_refused(self, store: StepStore, value: Any) -> None:
        with pytest.raises(NotStorableError):
            await store.save_snapshot(a_snapshot([returns(value)]))

    @pytest.mark.parametrize(
        'value',
        [{'handle': object()}, [lambda: None], {'a': {'b': {object()}}}],
        ids=['object', 'function', 'in a set'],
    )
    async def test_value_without_any_form_is_refused_by_the_name_of_its_tool(
        self, store: StepStore, value: Any
    ) -> None:
        with pytest.raises(NotStorableError) as caught:
            await store.save_snapshot(a_snapshot([asks('x'), returns(value)]))
        assert caught.value.part == "Part 0 (tool-return of 'tool') of a request"
        assert await store.list_snapshots(run_id='run-1') == []

    # --- files ---

    async def test_file_that_a_tool_returned_reads_back_as_the_same_bytes(self, store: StepStore) -> None:
        every_byte = bytes(range(256))
        part = await _returned(store, {'files': [BinaryContent(every_byte, media_type='application/x-thing'), 'note']})
        file, note = part.content['files']
        assert isinstance(file, BinaryContent)
        assert (file.data, file.media_type, note) == (every_byte, 'application/x-thing', 'note')

    async def test_image_reads_back_as_the_same_bytes(self, store: StepStore) -> None:
        content = [BinaryContent(PNG, media_type='image/png'), 'note']
        (message,) = await _round_trip(store, [ModelRequest(parts=[UserPromptPart(content, timestamp=NOON)])])
        (part,) = message.parts
        assert isinstance(part, UserPromptPart)
        image, note = part.content
        assert isinstance(image, BinaryContent)
        assert (image.data, image.media_type, note) == (PNG, 'image/png', 'note')

    async def test_file_and_its_look_alike_are_kept_apart(self, store: StepStore) -> None:
        image = BinaryImage(PNG, media_type='image/png')
        link = ImageUrl('https://example.com/\uf8ff.png')
        content = [
            image,
            {'kind': 'binary', 'data': 'eA==', 'media_type': 'image/png'},
            link,
            {'kind': 'image-url', 'url': 'https://example.com/a.png', 'extra': '\ud800'},
        ]
        part = await _returned(store, content)
        assert part.content == content
        assert [type(item) for item in part.content] == [BinaryImage, dict, ImageUrl, dict]

    @pytest.mark.parametrize(
        'file',
        [BinaryContent(PNG, media_type='text/x'), ImageUrl('https://example.com/a.png')],
        ids=['bytes', 'link'],
    )
    @pytest.mark.parametrize('first', ['file', 'mapping'])
    async def test_mapping_that_equals_a_saved_file_stays_a_mapping(
        self, store: StepStore, file: BinaryContent | ImageUrl, first: str
    ) -> None:
        mapping: Any = json.loads(ModelMessagesTypeAdapter.dump_json([returns([file])]))[0]['parts'][0]['content'][0]
        contents: list[Any] = [file, mapping] if first == 'file' else [mapping, file]
        for content in contents:
            await store.save_snapshot(a_snapshot([returns([content])]))
        read = await store.list_snapshots(run_id='run-1')
        assert [snapshot.messages for snapshot in read] == [[returns([content])] for content in contents]

    async def test_image_larger_than_a_document_of_some_databases_reads_back(self, store: StepStore) -> None:
        data = bytes(range(256)) * (5 * 4096)
        content = [BinaryContent(data, media_type='application/octet-stream') for _ in range(4)]
        message = ModelRequest(parts=[UserPromptPart(content, timestamp=NOON)])
        assert await _round_trip(store, [message]) == [message]

    async def test_text_larger_than_a_document_of_some_databases_reads_back(self, store: StepStore) -> None:
        text = 'long é ' * 2_500_000
        assert (await _returned(store, text)).content == text

    # --- bytes ---

    @pytest.mark.parametrize('size', [0, 1, 1024, 1024 * 1024])
    async def test_bytes_of_effects_and_responses_read_back(self, store: StepStore, size: int) -> None:
        data = bytes(index * 7 % 256 for index in range(size))
        await store.commit([an_end(value=data), a_response(body=data)])
        (effect,) = await store.list_tool_effects(run_id='run-1')
        response = await store.get_model_response(run_id='run-1', key='request-1')
        assert effect.value == data
        assert response is not None
        assert response.body == data

    # --- numbers ---

    @pytest.mark.parametrize('number', [0, 1, 2**31 - 1, 2**31, 2**53 + 1, 2**63 - 1])
    async def test_step_index_may_be_any_count(self, store: StepStore, number: int) -> None:
        await store.commit(
            [
                an_event(step_index=number),
                a_snapshot([asks('x')], step_index=number),
                an_end(step_index=number, attempts=number),
            ]
        )
        assert [event.step_index for event in await store.list_events(run_id='run-1')] == [number]
        assert [snapshot.step_index for snapshot in await store.list_snapshots(run_id='run-1')] == [number]
        (effect,) = await store.list_tool_effects(run_id='run-1')
        assert (effect.step_index, effect.attempts) == (number, number)

    @pytest.mark.parametrize('number', [-1, 2**63, 2**70])
    async def test_number_that_is_no_count_is_refused_and_nothing_written(self, store: StepStore, number: int) -> None:
        for record in (
            an_event(step_index=number),
            a_snapshot([asks('x')], step_index=number),
            an_extension([asks('x')], base_length=0, step_index=number),
            an_end(step_index=number),
            an_end(attempts=number),
        ):
            with pytest.raises(NotStorableError):
                await store.commit([a_run(), record])
        assert await store.list_runs() == []
