"""Open the store that a command works on, as options and settings say."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from harness_temporal.errors import ConfigurationError
from harness_temporal.hosting.store_settings import StoreSettings
from harness_temporal.records import RunRecord
from harness_temporal.stores.opening import FileLocation, open_store, parse_location
from harness_temporal.stores.protocol import BaseStepStore

DEV_FOLDER: Final = Path('.harness')
"""Where `harness-temporal dev` keeps everything, in the current folder."""
DEV_STORE: Final = DEV_FOLDER / 'runs.db'
DEV_STORE_URL: Final = f'sqlite:{DEV_STORE}'


def named_store(given: str | None) -> str | None:
    """Return what names the store: an option, a setting, or that `harness-temporal dev` made one here."""
    url = given or StoreSettings.load().url
    return DEV_STORE_URL if url is None and DEV_STORE.is_file() else url


def store_url(given: str | None) -> str:
    """Return what names the store.

    Raises:
        ConfigurationError: Nothing does.
    """
    url = named_store(given)
    if url is not None:
        return url
    raise ConfigurationError(
        'No store is named. Give `--store`, set HARNESS_STORE_URL, or `url` in [store] of harness.toml: '
        '`file:FOLDER`, `sqlite:FILE`, `postgresql://…` or `mongodb://HOST/DATABASE`. It is the store that your agents '
        'have.'
    )


@asynccontextmanager
async def opened_store(given: str | None, *, make: bool = False) -> AsyncGenerator[BaseStepStore]:
    """Open the store with its keys, and close it at the end. With `make`, files that are not there are made.

    Raises:
        ConfigurationError: None is named, there is none of that name, or its keys are not where the settings say.
    """
    url = store_url(given)
    location = parse_location(url, parameters=('schema',))
    if not make and isinstance(location, FileLocation) and not location.path.exists():
        raise ConfigurationError(
            f'There is no {str(location.path)!r}. Check the path of the store; `harness-temporal store migrate` makes '
            'a new one.'
        )
    if make and isinstance(location, FileLocation) and location.kind == 'file':
        # The store makes its folder with the first write.
        location.path.mkdir(mode=0o700, parents=True, exist_ok=True)
    store = open_store(url, keys=StoreSettings.load().load_key_ring())
    assert isinstance(store, BaseStepStore)
    try:
        yield store
    finally:
        await store.aclose()


async def required_run(store: BaseStepStore, run_id: str) -> RunRecord:
    """Return a run's record.

    Raises:
        ConfigurationError: The store does not have the run.
    """
    run = await store.get_run(run_id=run_id)
    if run is None:
        raise ConfigurationError(
            f'The store has no run {run_id!r}. `harness-temporal runs list` shows those that it has.'
        )
    return run
