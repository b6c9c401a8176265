"""Payloads of any size in Temporal: pieces in a media store, each stored once, and encryption."""

from __future__ import annotations

from harness_temporal.encryption import Key, KeyRing, KeySource
from harness_temporal.temporal.payloads.errors import PayloadError, PayloadTooLargeError, PayloadUnreadableError
from harness_temporal.temporal.payloads.expiry import expire_payloads
from harness_temporal.temporal.payloads.storage import PayloadStorage

__all__ = [
    'Key',
    'KeyRing',
    'KeySource',
    'PayloadError',
    'PayloadStorage',
    'PayloadTooLargeError',
    'PayloadUnreadableError',
    'expire_payloads',
]
