"""What is imported when it is used, because it needs an extra."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from importlib import import_module

from harness_temporal.errors import ConfigurationError


def lazy_exports(package: str, modules: Mapping[str, str]) -> Callable[[str], object]:
    """Return the `__getattr__` of a package, given the module that defines each of the names."""

    def get(name: str) -> object:
        if name not in modules:
            raise AttributeError(f'module {package!r} has no attribute {name!r}')
        return getattr(import_module(modules[name]), name)

    return get


@contextmanager
def needed_by(what: str, driver: str, extra: str) -> Generator[None]:
    """Import a driver, and modules that need it, for what can itself be imported without.

    Raises:
        ConfigurationError: It is not installed; the error says which extra has it.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise ConfigurationError(f"{what} needs {driver}: install 'harness-temporal[{extra}]'.") from error
