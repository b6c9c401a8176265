"""The `harness-temporal` command. The commands themselves are in `app`, which needs the `cli` extra."""

from __future__ import annotations

import sys

_NEEDED = frozenset({'typer', 'rich', 'pydantic_settings'})


def main() -> None:
    """Run the command line; without the `cli` extra, say how to get it."""
    try:
        from harness_temporal.cli.app import app

        app(prog_name='harness-temporal')
    except ModuleNotFoundError as error:
        package = (error.name or '').partition('.')[0]
        if package not in _NEEDED:
            raise
        sys.exit(f'error: {package!r} is not installed. Run: pip install "harness-temporal[cli,local]"')
    except SystemExit as end:
        if 'temporalio' not in sys.modules:
            raise
        from harness_temporal.hosting.ending import end_process

        end_process(end.code if isinstance(end.code, int) else 1 if end.code else 0)


__all__ = ['main']
