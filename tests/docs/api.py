"""Render docs/api.md from the docstrings: `uv run python -m tests.docs.api > docs/api.md`."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from typing import Any

MODULES = (
    'harness_temporal',
    'harness_temporal.step_persistence',
    'harness_temporal.step_persistence.conversations',
    'harness_temporal.step_persistence.naming',
    'harness_temporal.state',
    'harness_temporal.memory',
    'harness_temporal.media',
    'harness_temporal.stores',
    'harness_temporal.temporal',
    'harness_temporal.temporal.payloads',
    'harness_temporal.encryption',
    'harness_temporal.observability',
    'harness_temporal.importers',
    'harness_temporal.testing',
    'harness_temporal.tools',
    'harness_temporal.errors',
)


def render() -> str:
    """Return the page."""
    lines = [
        '# API reference',
        '',
        'Public names by module, with the first line of what their docstrings say; `help()` has the rest: arguments,',
        'units, errors.',
        'Stores with a driver of their own are importable from the same modules once their extra is installed.',
    ]
    seen: dict[int, str] = {}
    for name in MODULES:
        module = importlib.import_module(name)
        summary = (inspect.getdoc(module) or '').partition('\n')[0]
        lines += ['', f'## `{name}`', '', summary, '', '| name | |', '| --- | --- |']
        for public in sorted(public_names(module)):
            value = getattr(module, public)
            first = seen.setdefault(id(value), name) if callable(value) else name
            lines.append(f'| `{public}` | {_summary(value) if first == name else f"see `{first}`"} |')
    return '\n'.join(lines) + '\n'


def public_names(module: Any) -> Iterator[str]:
    """Return what a module exports: its `__all__`, or what it defines itself."""
    if hasattr(module, '__all__'):
        yield from module.__all__
        return
    for name, value in vars(module).items():
        defined_here = getattr(value, '__module__', None) == module.__name__
        if not name.startswith('_') and (inspect.isclass(value) or inspect.isfunction(value)) and defined_here:
            yield name


def _summary(value: Any) -> str:
    if not (inspect.isclass(value) or inspect.isfunction(value)):
        return ''
    text = (inspect.getdoc(value) or '').partition('\n\n')[0]
    return ' '.join(text.split()).replace('|', '\\|')


if __name__ == '__main__':
    print(render(), end='')
