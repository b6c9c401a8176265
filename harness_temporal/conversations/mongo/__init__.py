"""Conversations in MongoDB, for many processes at once."""

from harness_temporal.conversations.mongo.store import MongoConversationStore

__all__ = ['MongoConversationStore']
