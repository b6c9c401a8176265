"""Names of a package that are imported when they are used, because what defines them needs an extra."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module


def lazy_exports(package: str, modules: Mapping[str, str]) -> Callable[[str], object]:
    """Return the `__getattr__` of a package, given the module that defines each of the names."""

    def get(name: str) -> object:
        if name not in modules:
            raise AttributeError(f'module {package!r} has no attribute {name!r}')
        return getattr(import_module(modules[name]), name)

    return get
