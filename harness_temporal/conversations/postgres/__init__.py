"""Conversations in PostgreSQL, for many processes at once."""

from harness_temporal.conversations.postgres.store import PostgresConversationStore

__all__ = ['PostgresConversationStore']
