"""Blobs in MongoDB, for many processes at once."""

from harness_temporal.media.mongo.store import MongoMediaStore

__all__ = ['MongoMediaStore']
