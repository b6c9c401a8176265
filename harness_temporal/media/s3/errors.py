"""What the answers of S3, and the failures to get one, mean here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, ParamSpec, TypeVar

from harness_temporal.errors import (
    ConfigurationError,
    HarnessError,
    NotStorableError,
    StoreAccessError,
    StoreCorruptionError,
    StoreError,
    StoreUnavailableError,
)

P = ParamSpec('P')
T = TypeVar('T')
STORE: Final = 'S3MediaStore'

_NO_BUCKET = 'NoSuchBucket'
_WRONG_REGION = ('AuthorizationHeaderMalformed', 'IllegalLocationConstraintException', 'PermanentRedirect')
# Some of these come with the status 400.
_NO_ACCESS = ('AccessDenied', 'ExpiredToken', 'InvalidAccessKeyId', 'InvalidToken', 'SignatureDoesNotMatch')
_TOO_LARGE = ('EntityTooLarge', 'MetadataTooLarge', 'RequestHeaderSectionTooLarge')
# An upload that is gone was aborted by a collection that took it for a leftover: another one is right.
_PASSING = (
    'ConditionalRequestConflict',
    'NoSuchUpload',
    'OperationAborted',
    'RequestTimeout',
    'SlowDown',
    'Throttling',
)
_ARCHIVED = 'InvalidObjectState'
# 412 is the answer to `only_if_absent`: another writer was faster.
_PASSING_STATUSES = (408, 412, 429)


def call(method: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call what may raise errors of boto3, and raise errors of this package instead."""
    # Here, so that the package can be imported where boto3 is not installed.
    from botocore.exceptions import BotoCoreError, ClientError  # pyright: ignore[reportMissingTypeStubs]
    from botocore.parsers import ResponseParserError  # pyright: ignore[reportMissingTypeStubs]
    from urllib3.exceptions import HTTPError

    try:
        return method(*args, **kwargs)
    except (BotoCoreError, ClientError, ResponseParserError, HTTPError, OSError) as error:
        raise _meaning(error) from error


def status_of(error: StoreError) -> int | None:
    """Return the HTTP status of the answer that was this error, if there was one."""
    return _answer(error.__cause__)[0]


def cut_off() -> StoreUnavailableError:
    """Return the error of an answer that says less than it should."""
    return StoreUnavailableError(STORE, 'the connection broke in the middle of an answer.')


def no_bucket(bucket: str) -> ConfigurationError:
    """Return the error of a bucket that is not there."""
    name = repr(bucket) if bucket else 'of this name'
    return ConfigurationError(f'There is no bucket {name} at this endpoint and in this region.')


def _meaning(error: Exception) -> HarnessError:
    from botocore import exceptions as botocore  # pyright: ignore[reportMissingTypeStubs]

    reason = str(error) or type(error).__name__
    status, code, bucket = _answer(error)
    if status is not None:
        return _meaning_of_answer(status, code, bucket, reason)
    if isinstance(error, (botocore.ChecksumError, botocore.FlexibleChecksumError)):
        return StoreCorruptionError(STORE, f'{reason}.')
    if isinstance(error, botocore.SSOError):
        return StoreAccessError(STORE, f'{reason}.')
    passing = (
        botocore.ConnectionError,
        botocore.HTTPClientError,
        botocore.IncompleteReadError,
        botocore.CredentialRetrievalError,
        botocore.MetadataRetrievalError,
    )
    if isinstance(error, botocore.BotoCoreError) and not isinstance(error, passing):
        return ConfigurationError(f'The settings of the `{STORE}` cannot be used: {reason}.')
    return StoreUnavailableError(STORE, f'{reason}.')


def _meaning_of_answer(status: int, code: str, bucket: str, reason: str) -> HarnessError:
    if code == _NO_BUCKET:
        return no_bucket(bucket)
    if code in _WRONG_REGION or 300 <= status < 400:
        return ConfigurationError(f'The bucket is in another region or at another endpoint: {reason}.')
    if code in _TOO_LARGE:
        return NotStorableError('A blob', f'it or its metadata is too large for S3: {reason}.')
    if code in _PASSING or status in _PASSING_STATUSES or (status >= 500 and status != 501):
        return StoreUnavailableError(STORE, f'{reason}.')
    if code in _NO_ACCESS or (status in (401, 403) and code != _ARCHIVED):
        hint = (
            ' S3 gives this answer for a missing object as well, to those who may not list the bucket '
            '(`s3:ListBucket`).'
            if status == 403
            else ''
        )
        return StoreAccessError(STORE, f'{reason}.{hint}')
    return StoreError(STORE, f'{reason}.')


def _answer(error: BaseException | None) -> tuple[int | None, str, str]:
    """Return the status and the code of S3's answer, and the bucket that it names."""
    response: dict[str, Any] | None = getattr(error, 'response', None)
    if not isinstance(response, dict) or 'ResponseMetadata' not in response:
        return None, '', ''
    details = response.get('Error', {})
    status = response['ResponseMetadata'].get('HTTPStatusCode')
    return status, str(details.get('Code', '')), str(details.get('BucketName', ''))
