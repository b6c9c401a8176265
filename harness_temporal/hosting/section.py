"""One table of `harness.toml`, over which the environment goes, and errors that say where a value came from."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, ClassVar, Final, Self, get_args

from pydantic import SecretStr, ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from harness_temporal.errors import ConfigurationError

CONFIG_VARIABLE: Final = 'HARNESS_CONFIG'
"""Names the file; by default `harness.toml` in the current folder, if there is one."""
DEFAULT_FILE: Final = Path('harness.toml')
TABLES: Final = ('temporal', 'worker', 'store')


class Section(BaseSettings):
    """Settings of one table. A subclass gives the table, the prefix of the variables, and the fields."""

    # An empty variable is what a compose file passes on for one that is not set.
    model_config = SettingsConfigDict(extra='forbid', frozen=True, env_ignore_empty=True)
    table: ClassVar[str]

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Let the environment win over the file."""
        return init_settings, env_settings, InitSettingsSource(settings_cls, dict(_read(cls.table)))

    @classmethod
    def load(cls, **given: Any) -> Self:
        """Read the table and the environment. What is given as an option wins over both, unless it is `None`.

        Raises:
            ConfigurationError: A setting is missing, unknown or wrong, or the file is.
        """
        try:
            return cls(**{name: value for name, value in given.items() if value is not None})
        except ValidationError as error:
            lines = [cls._explain(details, given) for details in error.errors()]
            # Not chained: pydantic's own message repeats values, which may be secret.
            raise ConfigurationError('\n'.join(lines)) from None

    @classmethod
    def variable(cls, field: str) -> str:
        """Return the name of a setting's environment variable."""
        return f'{cls.model_config.get("env_prefix", "")}{field}'.upper()

    @classmethod
    def _explain(cls, details: ErrorDetails, given: Mapping[str, object]) -> str:
        if not details['loc']:
            return details['msg'].removeprefix('Value error, ')
        field = str(details['loc'][0])
        if details['type'] == 'extra_forbidden':
            close = get_close_matches(field, cls.model_fields, n=1)
            hint = f'; did you mean `{close[0]}`?' if close else f': there are {", ".join(sorted(cls.model_fields))}.'
            return f'{_file()} has `{field}` in [{cls.table}], which is no setting{hint}'
        variable = cls.variable(field)
        place = f'`{field}` in [{cls.table}] of {_file()}'
        if details['type'] in ('missing', 'too_short'):
            return f'Set {variable}, or {place}: {cls._meaning(field)}'
        where = variable if os.environ.get(variable) else place
        if given.get(field) is not None:
            where = f'--{field.replace("_", "-")}'
        shown = '' if cls._is_secret(field) else f' is {details["input"]!r}'
        return f'{where}{shown}: {details["msg"].removeprefix("Value error, ")}.'

    @classmethod
    def _meaning(cls, field: str) -> str:
        return cls.model_fields[field].description or 'it has no default.'

    @classmethod
    def _is_secret(cls, field: str) -> bool:
        annotation = cls.model_fields[field].annotation
        return SecretStr in (annotation, *get_args(annotation))


def _file() -> Path:
    return Path(os.environ.get(CONFIG_VARIABLE) or DEFAULT_FILE)


def _read(table: str) -> Mapping[str, object]:
    path = _file()
    try:
        text = path.read_text()
    except FileNotFoundError:
        if os.environ.get(CONFIG_VARIABLE):
            raise ConfigurationError(f'{CONFIG_VARIABLE} names {path}, which is not there.') from None
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f'{path} cannot be read: {error}') from error
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f'{path} is no TOML: {error}') from error
    unknown = [name for name in tables if name not in TABLES]
    if unknown:
        raise ConfigurationError(
            f'{path} has {unknown[0]!r}; the tables are {", ".join(f"[{name}]" for name in TABLES)}.'
        )
    found: object = tables.get(table, {})
    if not isinstance(found, dict):
        raise ConfigurationError(f'{path} has a value {table!r} where the table [{table}] should be.')
    return found  # pyright: ignore[reportUnknownVariableType]
