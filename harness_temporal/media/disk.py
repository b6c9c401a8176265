"""Blobs as files of one folder."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import AsyncGenerator, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Final
from uuid import uuid4

from anyio import to_thread

from harness_temporal.disk import LOCK_SECONDS, put_on_disk, take_lock
from harness_temporal.errors import (
    ConfigurationError,
    MediaCorruptionError,
    StoreCorruptionError,
    StoreSchemaError,
    StoreUnavailableError,
)
from harness_temporal.media.blob import CHUNK, Blob, StoredBlob
from harness_temporal.media.context import (
    NO_CONTEXT,
    KeyStrategy,
    MediaContext,
    PublicUrlResolver,
    default_key_strategy,
)
from harness_temporal.media.keys import checked_key, digest_in
from harness_temporal.media.metadata import dump_metadata, load_metadata
from harness_temporal.media.protocol import BaseMediaStore
from harness_temporal.media.uri import digest_of, media_uri, uri_of

STORE: Final = 'DiskMediaStore'
_SIDECAR = '.meta.json'
_UNFINISHED = '.unfinished'
_VERSION = 1
"""Of the files beside the blobs."""


class DiskMediaStore(BaseMediaStore):
    """Keeps each blob in a file of its own, and beside it what is known about it (`<file>.meta.json`), if anything.

    Several processes of one machine may share the folder. A blob is on disk, under its name, when `put` returns; what
    a process that died left behind has another name.

    Args:
        directory: The folder; it is made by the first write.
        key_strategy: Gives each blob's path in the folder; by default `<sha256>.bin`.
        public_url: Gives the URL from which a model may fetch a blob.
    """

    def __init__(
        self,
        directory: str | Path,
        *,
        key_strategy: KeyStrategy = default_key_strategy,
        public_url: PublicUrlResolver | None = None,
    ) -> None:
        super().__init__(public_url=public_url)
        self._directory = Path(directory).absolute()
        self._key_strategy = key_strategy

    async def exists(self, uri: str, *, context: MediaContext = NO_CONTEXT) -> bool:
        path = self._path(digest_of(uri), context)
        return await to_thread.run_sync(_is_file, path)

    async def get_metadata(self, uri: str, *, context: MediaContext = NO_CONTEXT) -> Mapping[str, str]:
        digest = digest_of(uri)
        path = self._path(digest, context)
        if not await to_thread.run_sync(_is_file, path):
            raise self._not_found(digest)
        return await to_thread.run_sync(_read_metadata, path, uri)

    async def blobs(self) -> AsyncGenerator[StoredBlob]:
        for blob in await to_thread.run_sync(self._list):
            yield blob

    async def delete(self, digest: str, *, untouched_since: datetime) -> bool:
        return await to_thread.run_sync(self._delete, digest, untouched_since)

    async def delete_leftovers(self, *, untouched_since: datetime) -> int:
        return await to_thread.run_sync(self._delete_leftovers, untouched_since)

    async def _write(self, blob: Blob, context: MediaContext) -> None:
        await to_thread.run_sync(self._write_file, blob, context)

    async def _read(self, digest: str, context: MediaContext) -> AsyncGenerator[bytes]:
        path = self._path(digest, context)
        with _errors(path):
            try:
                file = await to_thread.run_sync(open, path, 'rb')
            except FileNotFoundError as error:
                raise self._not_found(digest) from error
            with file:
                while piece := await to_thread.run_sync(file.read, CHUNK):
                    yield piece

    def _path(self, digest: str, context: MediaContext) -> Path:
        key = checked_key(self._key_strategy(uri_of(digest), context))
        if PurePosixPath(key).name.endswith((_SIDECAR, _UNFINISHED)):
            raise ConfigurationError(f'The key strategy gives {key!r}, a name that `{STORE}` uses for another purpose.')
        return self._directory / key

    def _write_file(self, blob: Blob, context: MediaContext) -> None:
        path = self._path(blob.digest, context)
        with _errors(path):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not path.parent.resolve().is_relative_to(self._directory.resolve()):
                raise ConfigurationError(f'{path} is outside of the folder {self._directory}, through a link.')
            # Collection looks and deletes alone: a blob that was found here is not deleted before it is touched.
            with self._locked(shared=True):
                if self._touch(path, blob):
                    return
            about = _about(context)
            if about:
                _put(path.with_name(path.name + _SIDECAR), [about])
            _put(path, blob.chunks())

    def _touch(self, path: Path, blob: Blob) -> bool:
        """Touch the file if it holds the blob already."""
        try:
            size = path.stat().st_size
        except FileNotFoundError:
            return False
        if digest_in(path.name) != blob.digest and media_uri(path.read_bytes()) != uri_of(blob.digest):
            raise ConfigurationError(f'The key strategy gives {path} to two different blobs.')
        if size != blob.size:
            return False
        os.utime(path)
        return True

    def _list(self) -> list[StoredBlob]:
        found: list[StoredBlob] = []
        with _errors(self._directory):
            for path in self._blob_files('*'):
                digest = digest_in(path.name)
                if digest is None:
                    continue
                with suppress(FileNotFoundError):
                    stat = path.stat()
                    found.append(StoredBlob(digest, stat.st_size, datetime.fromtimestamp(stat.st_mtime, UTC)))
        return found

    def _delete(self, digest: str, untouched_since: datetime) -> bool:
        deleted = False
        with _errors(self._directory), self._locked(shared=False):
            for path in self._files_of(digest):
                with suppress(FileNotFoundError):
                    if datetime.fromtimestamp(path.stat().st_mtime, UTC) < untouched_since:
                        path.unlink()
                        path.with_name(path.name + _SIDECAR).unlink(missing_ok=True)
                        deleted = True
        return deleted

    def _files_of(self, digest: str) -> Iterable[Path]:
        if self._key_strategy is default_key_strategy:
            return [self._path(digest, NO_CONTEXT)]
        # Where the file is may have depended on a context that is not known here.
        return self._blob_files(f'*{digest}*')

    def _blob_files(self, pattern: str) -> Iterator[Path]:
        return (path for path in self._directory.rglob(pattern) if not path.name.endswith((_SIDECAR, _UNFINISHED)))

    def _delete_leftovers(self, untouched_since: datetime) -> int:
        count = 0
        with _errors(self._directory):
            for path in self._directory.rglob(f'*{_UNFINISHED}'):
                with suppress(FileNotFoundError):
                    if datetime.fromtimestamp(path.stat().st_mtime, UTC) < untouched_since:
                        path.unlink()
                        count += 1
        return count

    @contextmanager
    def _locked(self, *, shared: bool) -> Generator[None]:
        try:
            descriptor = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            yield
            return
        try:
            take_lock(descriptor, shared=shared, seconds=LOCK_SECONDS)
            yield
        finally:
            os.close(descriptor)


def _put(path: Path, chunks: Iterable[bytes]) -> None:
    """Write a whole file, and put it on disk under its name."""
    unfinished = path.with_name(f'{path.name}.{uuid4().hex}{_UNFINISHED}')
    try:
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, 'wb') as file:
            for chunk in chunks:
                file.write(chunk)
            file.flush()
            put_on_disk(descriptor)
        os.replace(unfinished, path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _about(context: MediaContext) -> bytes:
    """Return the content of the file beside a blob; nothing if there is nothing to say."""
    if not (context.metadata or context.media_type):
        return b''
    about = {
        'version': _VERSION,
        'media_type': context.media_type,
        'metadata': dump_metadata(context.metadata).decode(),
    }
    return json.dumps(about).encode()


def _read_metadata(path: Path, uri: str) -> Mapping[str, str]:
    sidecar = path.with_name(path.name + _SIDECAR)
    with _errors(sidecar):
        try:
            content = sidecar.read_bytes()
        except FileNotFoundError:
            return {}
    try:
        about = json.loads(content)
        version, metadata = about['version'], about['metadata'].encode()
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise MediaCorruptionError(uri, f'{sidecar} cannot be read: {error}.') from error
    if version != _VERSION:
        raise StoreSchemaError(STORE, f'{sidecar} has version {version}, which a newer release made.')
    return load_metadata(metadata, uri)


def _is_file(path: Path) -> bool:
    with _errors(path):
        try:
            path.stat()
        except FileNotFoundError:
            return False
    return True


@contextmanager
def _errors(path: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        reason = f'{path}: {error.strerror or error}.'
        if error.errno in (errno.ENOTDIR, errno.EISDIR, errno.ELOOP):
            raise StoreCorruptionError(STORE, f'{reason} It is not of the kind it should be.') from error
        raise StoreUnavailableError(STORE, reason) from error
