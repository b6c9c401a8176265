"""Blobs in PostgreSQL, for many processes at once."""

from harness_temporal.media.postgres.store import PostgresMediaStore

__all__ = ['PostgresMediaStore']
