from __future__ import annotations

import pickle
from typing import Any

import pytest

from harness_temporal import errors
from harness_temporal.errors import (
    PERMANENT_ERRORS,
    AttemptReplacedError,
    ConfigurationError,
    ConversationConflict,
    ConversationNotFoundError,
    DeferredResumeError,
    DuplicateRunError,
    EffectNotUnresolvedError,
    ExternalContentError,
    FrontierLostError,
    HarnessError,
    HistoryMissingError,
    InputError,
    InvalidMediaUriError,
    InvalidNotebookError,
    InvalidNoteNameError,
    InvalidRunIdError,
    MediaCorruptionError,
    MediaNotFoundError,
    MissingKeyError,
    MissingRunIdError,
    NoteConflictError,
    NoteError,
    NoteNotFoundError,
    NoteTooLargeError,
    NotStorableError,
    PluginMissingError,
    RunActiveError,
    RunCleanupError,
    RunError,
    RunImportError,
    SnapshotNotFoundError,
    StateEnvelopeError,
    StateError,
    StoreAccessError,
    StoreCorruptionError,
    StoreError,
    StoreLoopError,
    StoreSchemaError,
    StoreUnavailableError,
    ThreadError,
    ToolEffectConflictError,
    UnknownToolOutcomeError,
)
from harness_temporal.media import media_uri
from harness_temporal.testing.samples import a_start

CLASSES: list[type[HarnessError]] = [
    value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, HarnessError)
]
INSTANCES: list[HarnessError] = [
    ConfigurationError('wrong'),
    PluginMissingError('missing'),
    InvalidRunIdError('../x', 'no.'),
    MissingRunIdError('none'),
    DuplicateRunError('run-1'),
    SnapshotNotFoundError('run-1', include_interrupted=False),
    FrontierLostError('run-1', ('charge_card',)),
    RunActiveError('run-1', 'workflow-1'),
    NotStorableError('Part 0', 'no.'),
    ToolEffectConflictError(a_start()),
    EffectNotUnresolvedError('run-1', 'call-1', ()),
    AttemptReplacedError('agent__a__model_request', 2),
    UnknownToolOutcomeError(a_start()),
    StoreError('Store', 'broken'),
    StoreUnavailableError('Store', 'busy'),
    StoreLoopError('Store', 'loop'),
    StoreSchemaError('Store', 'schema'),
    StoreCorruptionError('Store', 'gone'),
    HistoryMissingError('Store', 'gone'),
    StoreAccessError('Store', 'refused'),
    MissingKeyError("run 'run-1'", 'k1', has_keys=False),
    InvalidMediaUriError('x'),
    MediaNotFoundError('Store', media_uri(b'x')),
    MediaCorruptionError(media_uri(b'x'), 'gone'),
    InvalidNotebookError('namespace', '', 'it is empty.'),
    NoteError('main', 'no.'),
    InvalidNoteNameError('../x', 'no.'),
    NoteNotFoundError('main'),
    NoteConflictError('main', 'no.'),
    NoteTooLargeError('main', 'no.'),
    RunImportError('run-1', 'no.'),
    ExternalContentError('run-1', 'x', 'is gone.'),
    ConversationConflict('conversation', 'was deleted.'),
    ConversationNotFoundError('conversation'),
    StateError('capability_state_invalid', 'wrong', {'capability_id': 'acme'}),
    StateEnvelopeError('state_invalid', 'wrong', ('thread_id',)),
    RunError('run_failed', 'failed', retry_hint='new_run'),
    InputError('input_empty', 'empty'),
    DeferredResumeError('deferred_request_missing', 'gone', {'tool_call_id': 'call-1'}),
    ThreadError('prompt_empty', 'empty', {'tool_call_id': 'call-1'}),
    RunCleanupError(None, ()),
]


def test_every_error_of_the_module_is_tried_here() -> None:
    assert {type(error) for error in INSTANCES} == {*CLASSES} - {HarnessError}


@pytest.mark.parametrize(
    ('error', 'base'),
    [
        (ConfigurationError, ValueError),
        (PluginMissingError, ConfigurationError),
        (InvalidRunIdError, ValueError),
        (MissingRunIdError, RuntimeError),
        (DuplicateRunError, ValueError),
        (SnapshotNotFoundError, LookupError),
        (EffectNotUnresolvedError, LookupError),
        (NotStorableError, ValueError),
        (StoreUnavailableError, StoreError),
        (StoreLoopError, StoreError),
        (StoreSchemaError, StoreError),
        (StoreCorruptionError, StoreError),
        (HistoryMissingError, StoreCorruptionError),
        (StoreAccessError, StoreError),
        (MissingKeyError, StoreError),
        (InvalidMediaUriError, ValueError),
        (MediaNotFoundError, StoreError),
        (MediaCorruptionError, StoreCorruptionError),
        (ConversationConflict, ValueError),
        (ConversationNotFoundError, LookupError),
        (InvalidNotebookError, ValueError),
        (InvalidNoteNameError, NoteError),
        (InvalidNoteNameError, ValueError),
        (NoteNotFoundError, NoteError),
        (NoteConflictError, NoteError),
        (NoteTooLargeError, NoteError),
        (StateError, ValueError),
        (StateEnvelopeError, StateError),
        (RunError, RuntimeError),
        (InputError, RunError),
        (DeferredResumeError, RunError),
        (ThreadError, RuntimeError),
        (RunCleanupError, RunError),
    ],
)
def test_error_is_caught_by_code_for_its_base(error: type[Exception], base: type[Exception]) -> None:
    assert issubclass(error, base)
    assert issubclass(error, HarnessError)


def test_no_error_is_caught_by_accident_as_a_lookup_or_key_error() -> None:
    lookups = {
        SnapshotNotFoundError,
        FrontierLostError,
        EffectNotUnresolvedError,
        MediaNotFoundError,
        ConversationNotFoundError,
    }
    assert {error for error in CLASSES if issubclass(error, LookupError)} == lookups
    assert [error for error in CLASSES if issubclass(error, OSError | TypeError | AssertionError)] == []


def test_errors_carry_what_a_handler_needs() -> None:
    current = a_start()
    found: dict[str, Any] = {
        type(error).__name__: {name: value for name, value in vars(error).items() if not name.startswith('_')}
        for error in INSTANCES
    }
    store = {'store': 'Store'}
    assert found == {
        'ConfigurationError': {},
        'PluginMissingError': {},
        'InvalidRunIdError': {'run_id': '../x'},
        'MissingRunIdError': {},
        'DuplicateRunError': {'run_id': 'run-1'},
        'SnapshotNotFoundError': {'run_id': 'run-1'},
        'FrontierLostError': {'run_id': 'run-1', 'tool_names': ('charge_card',)},
        'RunActiveError': {'run_id': 'run-1', 'workflow_id': 'workflow-1'},
        'NotStorableError': {'part': 'Part 0'},
        'ToolEffectConflictError': {'current': current},
        'EffectNotUnresolvedError': {'run_id': 'run-1', 'tool_call_id': 'call-1', 'unresolved': ()},
        'AttemptReplacedError': {'activity_type': 'agent__a__model_request', 'attempt': 2},
        'UnknownToolOutcomeError': {'run_id': 'run-1', 'tool_call_id': 'call-1'},
        'StoreError': store,
        'StoreUnavailableError': store,
        'StoreLoopError': store,
        'StoreSchemaError': store,
        'StoreCorruptionError': store,
        'HistoryMissingError': store,
        'StoreAccessError': store,
        'MissingKeyError': {'store': 'encryption', 'key_id': 'k1'},
        'InvalidMediaUriError': {'uri': 'x'},
        'MediaNotFoundError': {**store, 'uri': media_uri(b'x')},
        'MediaCorruptionError': {'store': 'media', 'uri': media_uri(b'x')},
        'InvalidNotebookError': {'part': 'namespace', 'value': ''},
        'NoteError': {'note': 'main'},
        'InvalidNoteNameError': {'note': '../x'},
        'NoteNotFoundError': {'note': 'main'},
        'NoteConflictError': {'note': 'main'},
        'NoteTooLargeError': {'note': 'main'},
        'RunImportError': {'run_id': 'run-1'},
        'ExternalContentError': {'run_id': 'run-1', 'uri': 'x'},
        'ConversationConflict': {'conversation_id': 'conversation'},
        'ConversationNotFoundError': {'conversation_id': 'conversation'},
        'StateError': {'code': 'capability_state_invalid', 'details': {'capability_id': 'acme'}},
        'StateEnvelopeError': {'code': 'state_invalid', 'details': {}, 'locations': ('thread_id',)},
        'RunError': {'code': 'run_failed', 'details': {}, 'retry_hint': 'new_run'},
        'InputError': {'code': 'input_empty', 'details': {}, 'retry_hint': 'none'},
        'DeferredResumeError': {
            'code': 'deferred_request_missing',
            'details': {'tool_call_id': 'call-1'},
            'retry_hint': 'none',
        },
        'ThreadError': {'code': 'prompt_empty', 'details': {'tool_call_id': 'call-1'}},
        'RunCleanupError': {
            'code': 'run_cleanup_failed',
            'details': {'cause_count': 0},
            'retry_hint': 'new_run',
            'outcome': None,
            'causes': (),
        },
    }


def test_messages_say_what_to_do() -> None:
    assert 'conversation_id=' in str(DuplicateRunError('run-1'))
    assert 'include_interrupted=True' in str(SnapshotNotFoundError('run-1', include_interrupted=False))
    assert 'include_interrupted' not in str(SnapshotNotFoundError('run-1', include_interrupted=True))
    assert 'Check the outside system' in str(UnknownToolOutcomeError(a_start()))
    assert str(StoreError('Store', 'broken')) == 'Store: broken'


@pytest.mark.parametrize('error', INSTANCES, ids=lambda error: type(error).__name__)
def test_message_of_an_error_can_be_encoded(error: HarnessError) -> None:
    assert str(error)
    str(error).encode()


def test_message_of_a_run_id_with_lone_surrogates_can_be_encoded() -> None:
    str(InvalidRunIdError('\ud800' * 300, 'no.')).encode()
    str(DuplicateRunError('\ud800')).encode()


def test_errors_that_another_attempt_cannot_mend_are_all_but_these() -> None:
    # By exact class: `StoreUnavailableError` derives from one that is permanent.
    retried = {HarnessError, AttemptReplacedError, StoreUnavailableError, ToolEffectConflictError}
    assert {*PERMANENT_ERRORS} == {*CLASSES} - retried
    assert len(PERMANENT_ERRORS) == len({*PERMANENT_ERRORS})


@pytest.mark.parametrize('error', INSTANCES, ids=lambda error: type(error).__name__)
def test_error_survives_another_process(error: HarnessError) -> None:
    read = pickle.loads(pickle.dumps(error))
    assert type(read) is type(error)
    assert str(read) == str(error)
    assert vars(read) == vars(error)
