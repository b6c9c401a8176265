"""Blobs as objects of an S3 bucket."""

from __future__ import annotations

from harness_temporal.media.s3.store import S3MediaStore

__all__ = ['S3MediaStore']
