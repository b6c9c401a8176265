"""`HarnessState`: what a thread is continued from (state-and-resume seed, "State Contents"). It holds no authority."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, Literal, NoReturn, Self, cast
from uuid import uuid4

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    SerializerFunctionWrapHandler,
    TypeAdapter,
    ValidationError,
    model_serializer,
    model_validator,
)
from pydantic_ai.messages import ModelMessage
from pydantic_core import InitErrorDetails, PydanticCustomError, from_json

from harness_temporal.errors import StateEnvelopeError, StateError
from harness_temporal.history import decode_message
from harness_temporal.state.json_values import canonical_json
from harness_temporal.state.message_documents import encode_messages, message_document
from harness_temporal.state.namespaces import AgentContextState, ContentReference, EnvironmentState

SCHEMA_VERSION = '1'

_THREAD_ID = re.compile(r'thread-[0-9a-f]{32}|[a-z][a-z0-9]*_[a-z0-9]+')
_THREAD_ID_LIMIT = 256

_ENVIRONMENTS: TypeAdapter[dict[str, EnvironmentState]] = TypeAdapter(dict[str, EnvironmentState])


def _check_thread_id(thread_id: str) -> str:
    if len(thread_id) > _THREAD_ID_LIMIT or not _THREAD_ID.fullmatch(thread_id):
        raise ValueError(
            f'must be `prefix_suffix` of lower-case letters and digits, or `thread-` and 32 hexadecimal digits, of at '
            f'most {_THREAD_ID_LIMIT} characters'
        )
    return thread_id


class HarnessState(BaseModel):
    """The value that carries one thread from run to run, and from process to process.

    It restores data, not authority: no model, tool, credential, policy or approval is in it. Loading one runs no code
    of yours: capability and environment data stay JSON until their owner reads them.

    Persist the whole document (`model_dump_json`) and load it with `model_validate_json`, which gives an equal value.
    Fields and namespaces that this release does not know come back unchanged. Every read of `message_history`,
    `agent_context_state` and `environment_states` gives a copy of its own, so nothing can change a state.
    """

    model_config = ConfigDict(frozen=True, extra='allow')

    schema_version: Literal['1']
    thread_id: Annotated[str, AfterValidator(_check_thread_id)]
    refs: tuple[ContentReference, ...] = Field(default=())
    """Content of this state that a host keeps elsewhere. Kept, not interpreted."""

    _messages: tuple[bytes, ...] = PrivateAttr(default=())
    _capabilities: bytes = PrivateAttr(default=b'{"entries":{}}')
    _environments: bytes = PrivateAttr(default=b'{}')

    @classmethod
    def new(
        cls,
        *,
        thread_id: str | None = None,
        message_history: Iterable[ModelMessage] = (),
        agent_context_state: AgentContextState | Mapping[str, Any] | None = None,
        environment_states: Mapping[str, Any] | None = None,
    ) -> Self:
        """Make a state of a thread that has not been run yet.

        Without a `thread_id` one is drawn at random: in workflow code, pass one.

        Raises:
            StateEnvelopeError: A value does not fit; the error says which.
        """
        fields: dict[str, Any] = {
            'schema_version': SCHEMA_VERSION,
            'thread_id': thread_id if thread_id is not None else f'thread_{uuid4().hex}',
            'message_history': message_history,
        }
        if agent_context_state is not None:
            fields['agent_context_state'] = agent_context_state
        if environment_states is not None:
            fields['environment_states'] = environment_states
        return cls.model_validate(fields)

    def fork(self, *, thread_id: str | None = None) -> Self:
        """Copy everything but the environments into a thread of its own (seed, "Fork a Thread").

        Raises:
            StateError: `thread_id` is this thread's own (`thread_id_unchanged`).
            StateEnvelopeError: It is not a thread id.
        """
        if thread_id == self.thread_id:
            raise StateError('thread_id_unchanged', f'A fork of thread {thread_id!r} needs an id of its own.')
        chosen = thread_id if thread_id is not None else f'thread_{uuid4().hex}'
        return self._with(thread_id=chosen, _environments=b'{}')

    def advanced(
        self,
        *,
        message_history: Iterable[ModelMessage],
        agent_context_state: AgentContextState,
        environment_states: Mapping[str, EnvironmentState],
    ) -> Self:
        """Return the state of the same thread after a run, with everything that no run interprets as it was.

        Raises:
            StateError: A message has no form that reads back (`state_history_invalid`).
        """
        try:
            messages = encode_messages(message_history)
        except ValueError as error:
            raise StateError('state_history_invalid', f'The history cannot be kept: {error}') from error
        return self._with(
            _messages=messages,
            _capabilities=canonical_json(agent_context_state.model_dump()),
            _environments=canonical_json({key: value.model_dump() for key, value in environment_states.items()}),
        )

    def _with(self, *, thread_id: str | None = None, **private: Any) -> Self:
        fields = {name: getattr(self, name) for name in type(self).model_fields}
        if thread_id is not None:
            fields['thread_id'] = thread_id
        changed = type(self).model_validate({**fields, **(self.__pydantic_extra__ or {})})
        for name in ('_messages', '_capabilities', '_environments'):
            setattr(changed, name, private.get(name, getattr(self, name)))
        return changed

    @property
    def encoded_history(self) -> tuple[bytes, ...]:
        """The thread's messages as they are stored (`harness_temporal.history`)."""
        return self._messages

    def with_encoded_history(self, bodies: Iterable[bytes]) -> Self:
        """Return the state with other messages, in stored form. They are decoded when they are read."""
        return self._with(_messages=tuple(bodies))

    @property
    def message_history(self) -> tuple[ModelMessage, ...]:
        """The thread's messages, decoded for this read."""
        return tuple(decode_message(body) for body in self._messages)

    @property
    def agent_context_state(self) -> AgentContextState:
        """The capability namespaces, decoded for this read."""
        return AgentContextState.model_validate_json(self._capabilities)

    @property
    def environment_states(self) -> dict[str, EnvironmentState]:
        """Environment data by mount name, decoded for this read. A run does not restore it: its source does."""
        return _ENVIRONMENTS.validate_json(self._environments)

    @classmethod
    def model_validate_json(cls, json_data: str | bytes | bytearray, **settings: Any) -> Self:
        """Load a document that `model_dump_json` wrote.

        Raises:
            StateEnvelopeError: Its version is unknown (`state_version_unsupported`) or it is damaged (`state_invalid`).
        """
        try:
            return super().model_validate_json(json_data, **settings)
        except ValidationError as error:
            _refuse(error)

    @classmethod
    def model_validate(cls, obj: Any, **settings: Any) -> Self:
        """Load a document that was parsed already.

        Raises:
            StateEnvelopeError: As for `model_validate_json`.
        """
        try:
            return super().model_validate(obj, **settings)
        except ValidationError as error:
            _refuse(error)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Copy the state as it is. Changes go through `fork`, which validates them.

        Raises:
            StateError: There is something to change.
        """
        if update:
            raise StateError('state_invalid', '`model_copy(update=...)` would not be validated: use `fork` or `new`.')
        return super().model_copy(deep=deep)

    @model_validator(mode='wrap')
    @classmethod
    def _encoded(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if isinstance(data, cls) or not isinstance(data, Mapping):
            return handler(data)
        fields = dict(cast(Mapping[str, Any], data))
        # A name of ours that starts with an underscore is an unknown field like any other; Pydantic keeps those too.
        given = {name: fields.pop(name) for name in _ENCODERS if name in fields}
        encoded: dict[str, Any] = {}
        wrong: list[InitErrorDetails] = []
        for name, value in given.items():
            private, encode = _ENCODERS[name]
            try:
                encoded[private] = encode(value)
            except ValueError as error:
                wrong.append(
                    {
                        'type': PydanticCustomError('state_field', '{reason}', {'reason': str(error)}),
                        'loc': (name,),
                        'input': value,
                    }
                )
        try:
            state = handler(fields)
        except ValidationError as error:
            rest = [
                {'type': item['type'], 'loc': item['loc'], 'input': item['input'], 'ctx': item.get('ctx', {})}
                for item in error.errors(include_url=False)
            ]
            raise ValidationError.from_exception_data(
                cls.__name__, [*wrong, *cast(list[InitErrorDetails], rest)]
            ) from None
        if wrong:
            raise ValidationError.from_exception_data(cls.__name__, wrong)
        for private, value in encoded.items():
            setattr(state, private, value)
        return state

    @model_serializer(mode='wrap')
    def _decoded(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {
            **handler(self),
            'message_history': [message_document(body) for body in self._messages],
            'agent_context_state': from_json(self._capabilities),
            'environment_states': from_json(self._environments),
        }

    def __hash__(self) -> int:
        return hash((self.thread_id, self._messages, self._capabilities, self._environments))


def _refuse(error: ValidationError) -> NoReturn:
    locations, told = _told(error)
    if locations == ('schema_version',) and error.errors()[0]['type'] != 'missing':
        raise StateEnvelopeError(
            'state_version_unsupported',
            f'The state is not of version {SCHEMA_VERSION!r}, which is all that this release reads.',
            locations,
        ) from error
    raise StateEnvelopeError('state_invalid', f'This is not a state: {told}', locations) from error


@contextmanager
def _one_line() -> Generator[None]:
    try:
        yield
    except ValidationError as error:
        raise ValueError(_told(error)[1]) from error


def _told(error: ValidationError) -> tuple[tuple[str, ...], str]:
    """Return the fields that are wrong, and one line of why."""
    problems = error.errors(include_url=False, include_input=False, include_context=False)
    locations = tuple('.'.join(str(item) for item in problem['loc']) for problem in problems)
    lines = [f'{where or "document"}: {problem["msg"]}' for where, problem in zip(locations, problems, strict=True)]
    return locations, '; '.join(lines)


def _encode_capabilities(value: Any) -> bytes:
    with _one_line():
        return canonical_json(AgentContextState.model_validate(value).model_dump())


def _encode_environments(value: Any) -> bytes:
    with _one_line():
        environments = _ENVIRONMENTS.validate_python(value)
    return canonical_json({key: environment.model_dump() for key, environment in environments.items()})


_ENCODERS = {
    'message_history': ('_messages', encode_messages),
    'agent_context_state': ('_capabilities', _encode_capabilities),
    'environment_states': ('_environments', _encode_environments),
}
"""Fields that are kept as bytes: nothing that was given or read can be changed through them."""
