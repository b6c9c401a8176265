"""Notebooks in PostgreSQL, for many processes at once."""

from harness_temporal.memory.postgres.store import PostgresMemoryStore

__all__ = ['PostgresMemoryStore']
