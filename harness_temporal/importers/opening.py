"""Open the store to import from, by how it is written down."""

from __future__ import annotations

from urllib.parse import urlsplit

from harness_temporal.errors import ConfigurationError
from harness_temporal.importers.file import FileSource
from harness_temporal.importers.mongo import MongoSource
from harness_temporal.importers.postgres import PostgresSource
from harness_temporal.importers.source import RunSource
from harness_temporal.importers.sqlite import SqliteSource
from harness_temporal.stores.opening import FileLocation, ServerLocation, parse_location


def open_source(text: str) -> RunSource:
    """Return a reader of the `pydantic-ai-harness` store that `text` names, as `open_store` would name one of ours.

    The URL of PostgreSQL may name the prefix of the tables, as in `postgresql://localhost/app?table=step_persistence`.
    Nothing is opened before the first use.

    Raises:
        ConfigurationError: It names none.
    """
    location = parse_location(text, parameters=('table',))
    if isinstance(location, FileLocation):
        return FileSource(location.path) if location.kind == 'file' else SqliteSource(location.path)
    if location.kind == 'postgresql':
        table = location.parameters.get('table')
        return PostgresSource(location.url) if table is None else PostgresSource(location.url, prefix=table)
    return MongoSource(location.url, location.required_database())


def check_apart(source: str, target: str) -> None:
    """Make sure that an import does not write where it reads.

    Raises:
        ConfigurationError: Source and target are in one place.
    """
    one, other = parse_location(source), parse_location(target)
    if isinstance(one, FileLocation) and isinstance(other, FileLocation):
        read, written = one.path.resolve(), other.path.resolve()
        same = read.is_relative_to(written) or written.is_relative_to(read)
    elif isinstance(one, ServerLocation) and isinstance(other, ServerLocation):
        # In PostgreSQL our tables are in a schema of their own.
        same = one.kind == other.kind == 'mongodb' and _place(one) == _place(other)
    else:
        same = False
    if same:
        raise ConfigurationError(f'The target {target!r} is where the source is: choose another place.')


def _place(location: ServerLocation) -> tuple[frozenset[str], str]:
    hosts = urlsplit(location.url).netloc.rpartition('@')[2].lower()
    return frozenset(hosts.split(',')), location.database
