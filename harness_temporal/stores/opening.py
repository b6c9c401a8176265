"""How a store is written down, on a command line or in a setting, and opened from that."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit

from harness_temporal.encryption.keys import KeyRing
from harness_temporal.errors import ConfigurationError
from harness_temporal.stores.file import FileStepStore
from harness_temporal.stores.protocol import StepStore
from harness_temporal.stores.sqlite import SqliteStepStore

_FORMS = '`file:FOLDER`, `sqlite:FILE`, `postgresql://…` or `mongodb://HOST/DATABASE`'
_DATABASES = {
    'postgres': 'postgresql',
    'postgresql': 'postgresql',
    'mongodb': 'mongodb',
    'mongodb+srv': 'mongodb',
}
_SQLITE_ENDINGS = frozenset({'.db', '.sqlite', '.sqlite3'})


@dataclass(frozen=True)
class FileLocation:
    """A folder of files, or the file of a SQLite database."""

    kind: Literal['file', 'sqlite']
    path: Path


@dataclass(frozen=True)
class ServerLocation:
    """A database on a server."""

    kind: Literal['postgresql', 'mongodb']
    url: str
    parameters: dict[str, str]
    """The part of the URL's query that is ours, not the driver's."""

    @property
    def database(self) -> str:
        """The database that the URL names; empty if it names none."""
        return unquote(urlsplit(self.url).path.removeprefix('/'))

    def required_database(self) -> str:
        """Return the database that the URL names.

        Raises:
            ConfigurationError: It names none.
        """
        if not self.database:
            raise ConfigurationError('The URL of MongoDB has to name the database: `mongodb://HOST/DATABASE`.')
        return self.database


def parse_location(text: str, *, parameters: tuple[str, ...] = ()) -> FileLocation | ServerLocation:
    """Read where a store is: a URL, the path of a folder or of a SQLite file.

    Args:
        text: `file:FOLDER`, `sqlite:FILE`, `postgresql://…`, `mongodb://HOST/DATABASE`, or a path that is there or ends
            like a database.
        parameters: What the query of a server's URL may say to us.

    Raises:
        ConfigurationError: It is none of these; the error says what is.
    """
    scheme, colon, rest = text.partition(':')
    if colon and scheme in ('file', 'sqlite'):
        return FileLocation(scheme, _path(text, scheme, rest))
    if colon and scheme in _DATABASES and rest.startswith('//'):
        return _server(_DATABASES[scheme], text, parameters)
    if '://' in text:
        raise ConfigurationError(f'{scheme!r} is no kind of store; write {_FORMS}.')
    path = Path(text)
    if text and path.is_dir():
        return FileLocation('file', path)
    if path.is_file() or path.suffix in _SQLITE_ENDINGS:
        return FileLocation('sqlite', path)
    raise ConfigurationError(f'There is no {text!r} to tell the kind of store from; write {_FORMS}.')


def open_store(text: str, *, keys: KeyRing | None = None) -> StepStore:
    """Return the store that `text` names. Nothing is opened or made before its first use.

    Args:
        text: See `parse_location`. The URL of PostgreSQL may name the schema, as in
            `postgresql://localhost/app?schema=agents`.
        keys: Encrypt content with the newest of these; see `BaseStepStore`.

    Raises:
        ConfigurationError: It names none, or one whose driver is not installed.
    """
    location = parse_location(text, parameters=('schema',))
    if isinstance(location, FileLocation):
        kind = FileStepStore if location.kind == 'file' else SqliteStepStore
        return kind(location.path, keys=keys)
    if location.kind == 'postgresql':
        from harness_temporal.stores.postgres import PostgresStepStore

        schema = location.parameters.get('schema')
        if schema is None:
            return PostgresStepStore(location.url, keys=keys)
        return PostgresStepStore(location.url, schema=schema, keys=keys)
    from harness_temporal.stores.mongo import MongoStepStore

    return MongoStepStore(db_url=location.url, database=location.required_database(), keys=keys)


def _path(text: str, scheme: str, rest: str) -> Path:
    if rest.startswith('//'):
        # Some take `sqlite:///runs.db` as relative, others as absolute: neither is guessed.
        raise ConfigurationError(f'Write {text!r} as `{scheme}:PATH`, without `//`.')
    if not rest:
        raise ConfigurationError(f'{text!r} names no path; write `{scheme}:PATH`.')
    return Path(rest)


def _server(kind: str, text: str, names: tuple[str, ...]) -> ServerLocation:
    try:
        parts = urlsplit(text)
    except ValueError as error:
        raise ConfigurationError(f'{text!r} is no URL of a store: {error}.') from error
    query = parse_qsl(parts.query, keep_blank_values=True)
    ours = {name: value for name, value in query if name in names}
    # Untouched unless there is something of ours in it: the driver knows best how to read it.
    url = SplitResult(*parts[:3], urlencode([item for item in query if item[0] not in ours]), parts.fragment).geturl()
    return ServerLocation('mongodb' if kind == 'mongodb' else 'postgresql', url if ours else text, ours)
