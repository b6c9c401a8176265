"""Keys, and encryption with them: of Temporal's payloads and of what stores keep. Needs the extra `crypto`."""

from __future__ import annotations

from harness_temporal.encryption.keys import Key, KeyRing, KeySource

__all__ = ['Key', 'KeyRing', 'KeySource']
