"""A store in MongoDB, for many processes at once."""

from harness_temporal.stores.mongo.store import MongoStepStore

__all__ = ['MongoStepStore']
