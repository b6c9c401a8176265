"""A store in a folder of plain files, for several processes of one machine."""

from harness_temporal.stores.file.store import FileStepStore

__all__ = ['FileStepStore']
