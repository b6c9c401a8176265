"""A store in PostgreSQL, for many processes at once."""

from harness_temporal.stores.postgres.store import PostgresStepStore

__all__ = ['PostgresStepStore']
