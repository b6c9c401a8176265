"""Notebooks in MongoDB, for many processes at once."""

from harness_temporal.memory.mongo.store import MongoMemoryStore

__all__ = ['MongoMemoryStore']
