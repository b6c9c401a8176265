"""The statements of the `.sql` files, for one schema."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final, TypeAlias

from harness_temporal.errors import ConfigurationError

DATABASE: Final = 'PostgreSQL'
Row: TypeAlias = Mapping[str, Any]
"""A row as the driver gives it, by column name."""

_PACKAGE = 'harness_temporal.databases.postgres'
_SCHEMA = re.compile(r'[a-z_][a-z0-9_]{0,62}')
_NAME = re.compile(r'^-- name: (\w+)$', re.MULTILINE)


@dataclass(frozen=True)
class Migration:
    """One numbered step of the schema. A released one is never edited."""

    version: int
    name: str
    script: str

    @property
    def checksum(self) -> str:
        """The identity of what the file says, the same for every schema."""
        return hashlib.sha256(self.script.encode()).hexdigest()


class Statements:
    """The queries of a package, with their `{schema}` filled in. Nothing else is ever put into SQL as text."""

    def __init__(self, schema: str, package: str) -> None:
        if not _SCHEMA.fullmatch(schema):
            raise ConfigurationError(
                f'`schema` must be 1 to 63 of `a-z 0-9 _` and not start with a digit, got {schema!r}.'
            )
        self.schema_name = schema
        # Quoted, because the name may be a word of SQL.
        self.schema = f'"{schema}"'
        texts = {**_queries(_PACKAGE), **_queries(package)}
        self.queries: Mapping[str, str] = {name: self.bind(text) for name, text in texts.items()}

    def bind(self, text: str) -> str:
        """Fill in the schema."""
        return text.replace('{schema}', self.schema)


@cache
def migrations() -> tuple[Migration, ...]:
    """Return all migrations, in order. A file's name gives the version and says what it does."""
    folder = files(_PACKAGE) / 'migrations'
    scripts = {file.name: file.read_text('utf-8') for file in folder.iterdir() if file.name.endswith('.sql')}
    return tuple(Migration(int(name[:4]), name[5:-4], script) for name, script in sorted(scripts.items()))


@cache
def _queries(package: str) -> Mapping[str, str]:
    _, *parts = _NAME.split((files(package) / 'queries.sql').read_text('utf-8'))
    return dict(zip(parts[::2], (text.strip() for text in parts[1::2]), strict=True))
