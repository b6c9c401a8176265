"""Every error this package raises, in one tree.

A class also derives from the builtin that the step-persistence seed names for it (`ValueError`, `LookupError`,
`RuntimeError`), so that code written against the seed catches it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from harness_temporal.records import ToolEffectRecord

RetryHint: TypeAlias = Literal['none', 'new_run', 'dependency_change']
"""What could mend a failed run: nothing, another run with the same input, or a change outside of it."""


class HarnessError(Exception):
    """Base of every error of this package."""

    def __reduce__(self) -> tuple[object, ...]:
        # The default calls `__init__` with the message alone.
        return _restored, (type(self), self.args, vars(self))


def _restored(error: type[HarnessError], args: tuple[object, ...], fields: dict[str, object]) -> HarnessError:
    restored = error.__new__(error, *args)
    restored.__dict__.update(fields)
    return restored


class ConfigurationError(HarnessError, ValueError):
    """A setting is wrong, or two settings do not go together."""


class PluginMissingError(ConfigurationError):
    """A client or worker runs without `HarnessPlugin`."""


class InvalidRunIdError(HarnessError, ValueError):
    """A run id is too long or holds a character that no store accepts."""

    def __init__(self, run_id: str, reason: str) -> None:
        super().__init__(f'Run id {run_id[:220]!r} cannot be used: {reason}')
        self.run_id = run_id


class MissingRunIdError(HarnessError, RuntimeError):
    """The run has no id to persist it under; making one up would detach a replay from its record."""


class DuplicateRunError(HarnessError, ValueError):
    """A run id is registered already, by another run."""

    def __init__(self, run_id: str) -> None:
        super().__init__(
            f'Run id {run_id!r} is already registered by another run. A `run_id` names one `Agent.run` call: '
            'leave it unset to get one per call, and group the turns of a conversation with `conversation_id=`.'
        )
        self.run_id = run_id


class SnapshotNotFoundError(HarnessError, LookupError):
    """A run has no snapshot to continue from."""

    def __init__(self, run_id: str, *, include_interrupted: bool) -> None:
        hint = (
            ''
            if include_interrupted
            else ' An interrupted one may exist: check `list_unresolved_tool_effects`, then pass '
            '`include_interrupted=True`.'
        )
        super().__init__(f'Run {run_id!r} has no snapshot to continue from.{hint}')
        self.run_id = run_id


class FrontierLostError(HarnessError, LookupError):
    """A run called tools for a response that the store does not hold, so nothing says what they were asked."""

    def __init__(self, run_id: str, tool_names: tuple[str, ...]) -> None:
        super().__init__(
            f'Run {run_id!r} went on after its newest snapshot: it called {", ".join(map(repr, tool_names))}, and the '
            'response that asked for it was not recorded. Going on from that snapshot could do these effects again. '
            'Look at `list_tool_effects`; if that is acceptable, continue its newest complete snapshot.'
        )
        self.run_id = run_id
        self.tool_names = tool_names


class RunActiveError(HarnessError):
    """A run is to be resumed whose own workflow is still running."""

    def __init__(self, run_id: str, workflow_id: str) -> None:
        super().__init__(
            f'Run {run_id!r} has not ended: its workflow {workflow_id!r} is running. Resuming it beside that would do '
            'its effects twice. Terminate or cancel the workflow first.'
        )
        self.run_id = run_id
        self.workflow_id = workflow_id


class NotStorableError(HarnessError, ValueError):
    """A value would not read back as it was given, so it is refused before anything is written."""

    def __init__(self, part: str, reason: str) -> None:
        super().__init__(f'{part} cannot be stored: {reason}')
        self.part = part


class ToolEffectConflictError(HarnessError):
    """The effect ledger holds a state that a write may not replace; nothing of the batch was written."""

    def __init__(self, current: ToolEffectRecord) -> None:
        super().__init__(
            f'Tool call {current.tool_name!r} ({current.tool_call_id!r}) of run {current.run_id!r} is '
            f'{current.status!r} since attempt {current.attempts}; this write is older or belongs to another attempt.'
        )
        self.current = current


class EffectNotUnresolvedError(HarnessError, LookupError):
    """A decision names no call of a run whose outcome is unknown, or more than one."""

    def __init__(self, run_id: str, tool_call_id: str, unresolved: tuple[str, ...]) -> None:
        left = ', '.join(map(repr, unresolved)) or 'none'
        super().__init__(
            f'Run {run_id[:220]!r} has not exactly one unresolved call {tool_call_id[:220]!r}; unresolved: {left}.'
        )
        self.run_id = run_id
        self.tool_call_id = tool_call_id
        self.unresolved = unresolved
        """Ledger keys of the calls that are, of those with that id if there are any."""


class AttemptReplacedError(HarnessError):
    """An attempt was silent for so long that another one has its place. What it did is not written."""

    def __init__(self, activity_type: str, attempt: int) -> None:
        super().__init__(f'Attempt {attempt} of {activity_type!r} was presumed dead, and another one has its place.')
        self.activity_type = activity_type
        self.attempt = attempt


class UnknownToolOutcomeError(HarnessError):
    """A tool call may or may not have had its effect, and `on_unknown='fail'` ends the run for it."""

    def __init__(self, record: ToolEffectRecord) -> None:
        super().__init__(
            f'The outcome of tool {record.tool_name!r} (call {record.tool_call_id!r} of run {record.run_id!r}) is '
            'unknown: an earlier attempt started it and its end was never recorded. Check the outside system, then '
            'continue the run from its snapshot.'
        )
        self.run_id = record.run_id
        self.tool_call_id = record.tool_call_id


class StoreError(HarnessError):
    """A store failed."""

    def __init__(self, store: str, reason: str) -> None:
        super().__init__(f'{store}: {reason}')
        self.store = store


class StoreUnavailableError(StoreError):
    """A store cannot be reached, or is too busy to answer. Trying again later is right."""


class StoreLoopError(StoreError):
    """A store whose connections belong to one event loop is used in another."""


class StoreSchemaError(StoreError):
    """A store holds a schema that this release does not know, or one whose migrations were changed."""


class StoreCorruptionError(StoreError):
    """Something a store refers to is missing or damaged."""


class HistoryMissingError(StoreCorruptionError):
    """A snapshot extends a history that the store does not hold."""


class StoreAccessError(StoreError):
    """A store refuses these credentials, or they may not do this."""


class MissingKeyError(StoreError):
    """Content of a store is encrypted, and its reader does not have the key. `key_id` says which one."""

    def __init__(self, owner: str, key_id: str, *, has_keys: bool) -> None:
        what = 'which is not among the keys' if has_keys else 'and this store has no keys: give it `keys=`'
        super().__init__('encryption', f'{owner} has content that is encrypted with the key {key_id!r}, {what}.')
        self.key_id = key_id


class InvalidMediaUriError(HarnessError, ValueError):
    """Something is not the URI of a blob."""

    def __init__(self, uri: str) -> None:
        super().__init__(f'{uri[:200]!r} is not a media URI; one is `media+sha256://` and 64 hexadecimal digits.')
        self.uri = uri


class MediaNotFoundError(StoreError, LookupError):
    """A media store does not hold a blob."""

    def __init__(self, store: str, uri: str) -> None:
        super().__init__(store, f'there is no blob {uri}.')
        self.uri = uri


class MediaCorruptionError(StoreCorruptionError):
    """A blob is not what its URI says."""

    def __init__(self, uri: str, reason: str) -> None:
        super().__init__('media', f'the blob {uri} is damaged: {reason}')
        self.uri = uri


class InvalidNotebookError(HarnessError, ValueError):
    """An agent's name or a namespace cannot name a notebook."""

    def __init__(self, part: str, value: str, reason: str) -> None:
        super().__init__(f'The {part} {value[:220]!r} cannot name a notebook: {reason}')
        self.part = part
        self.value = value


class NoteError(HarnessError):
    """A note cannot be read or changed as asked. `note` is its name."""

    def __init__(self, note: str, reason: str) -> None:
        super().__init__(f'Note {note[:220]!r}: {reason}')
        self.note = note


class InvalidNoteNameError(NoteError, ValueError):
    """A note cannot have this name."""


class NoteNotFoundError(NoteError):
    """A notebook has no such note."""

    def __init__(self, note: str) -> None:
        super().__init__(note, 'there is no such note.')


class NoteConflictError(NoteError):
    """A note is not what the writer took it for: another writer changed it, or the passage to replace is not unique."""


class NoteTooLargeError(NoteError):
    """A note is, or would become, larger than a note may be."""


class RunImportError(HarnessError):
    """A run of another library's store cannot be imported as it is."""

    def __init__(self, run_id: str, reason: str) -> None:
        super().__init__(f'Run {run_id[:220]!r} cannot be imported: {reason}')
        self.run_id = run_id


class ExternalContentError(RunImportError):
    """Content that a message refers to is missing, damaged, or referred to in an unknown form."""

    def __init__(self, run_id: str, uri: str, reason: str) -> None:
        super().__init__(run_id, f'the content {uri!r} {reason}')
        self.uri = uri


class ConversationConflict(HarnessError, ValueError):
    """Another writer changed or deleted a conversation, or has it in work. Load it again before you write."""

    def __init__(self, conversation_id: str, reason: str) -> None:
        super().__init__(f'Conversation {conversation_id[:220]!r} {reason}')
        self.conversation_id = conversation_id


class ConversationNotFoundError(HarnessError, LookupError):
    """There is no conversation under an id."""

    def __init__(self, conversation_id: str) -> None:
        super().__init__(f'There is no conversation {conversation_id[:220]!r}.')
        self.conversation_id = conversation_id


class StateError(HarnessError, ValueError):
    """State cannot be read, written or exported. `code` says which rule it broke."""

    def __init__(self, code: str, message: str, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.details = dict(details or {})


class StateEnvelopeError(StateError):
    """A document is not a state that this release can load. `locations` are the fields that are wrong."""

    def __init__(self, code: str, message: str, locations: tuple[str, ...] = ()) -> None:
        super().__init__(code, message)
        self.locations = locations


class RunError(HarnessError, RuntimeError):
    """A run cannot start, or did not complete. `code` says why."""

    def __init__(
        self,
        code: str,
        message: str,
        details: Mapping[str, Any] | None = None,
        *,
        retry_hint: RetryHint = 'none',
    ) -> None:
        super().__init__(message)
        self.code = code
        self.details = dict(details or {})
        self.retry_hint: RetryHint = retry_hint


class InputError(RunError):
    """A run was given input that it cannot take."""


class DeferredResumeError(RunError):
    """Answers to deferred calls do not fit what was asked, the history, or the tools of this run."""


class ThreadError(HarnessError, RuntimeError):
    """A thread refuses what it was asked for. `code` says why, `details` which call it is about."""

    def __init__(self, code: str, message: str, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.details = dict(details or {})


class RunCleanupError(RunError):
    """A run came to its end, and closing it failed. `outcome` may be right, but its delivery was not clean."""

    def __init__(self, outcome: Any, causes: tuple[BaseException, ...]) -> None:
        names = ', '.join(type(cause).__name__ for cause in causes)
        super().__init__(
            'run_cleanup_failed',
            f'The run ended, but closing it raised {names or "an error"}. Its result is in `outcome`: check what is '
            'left open outside before you use it.',
            {'cause_count': len(causes)},
            retry_hint='new_run',
        )
        self.outcome = outcome
        self.causes = causes


PERMANENT_ERRORS: tuple[type[HarnessError], ...] = (
    ConfigurationError,
    PluginMissingError,
    InvalidRunIdError,
    MissingRunIdError,
    DuplicateRunError,
    SnapshotNotFoundError,
    FrontierLostError,
    RunActiveError,
    NotStorableError,
    EffectNotUnresolvedError,
    UnknownToolOutcomeError,
    StoreError,
    StoreLoopError,
    StoreSchemaError,
    StoreCorruptionError,
    HistoryMissingError,
    StoreAccessError,
    MissingKeyError,
    InvalidMediaUriError,
    MediaNotFoundError,
    MediaCorruptionError,
    InvalidNotebookError,
    NoteError,
    InvalidNoteNameError,
    NoteNotFoundError,
    NoteConflictError,
    NoteTooLargeError,
    RunImportError,
    ExternalContentError,
    ConversationConflict,
    ConversationNotFoundError,
    StateError,
    StateEnvelopeError,
    RunError,
    InputError,
    DeferredResumeError,
    ThreadError,
    RunCleanupError,
)
"""The errors that another attempt cannot mend, each by its exact class. Every other one is worth a retry."""
