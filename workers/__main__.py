"""`python -m workers`."""

from __future__ import annotations

import asyncio
import logging
import sys

from harness_temporal.errors import ConfigurationError
from harness_temporal.hosting.ending import end_process
from harness_temporal.hosting.logs import configure_logging
from workers.agent_worker import run_worker
from workers.settings import Settings

logger = logging.getLogger('workers')


def main() -> int:
    """Run the worker that `harness.toml` and the environment describe, and return the exit status."""
    try:
        settings = Settings.load()
        configure_logging(settings.worker.log_level, settings.worker.log_format)
        asyncio.run(run_worker(settings))
    except ConfigurationError as error:
        print(f'error: {error}', file=sys.stderr)
        return 1
    except Exception:
        # Where the rest of the log goes, and in its form.
        logger.critical('the worker failed', exc_info=True)
        return 1
    return 0


if __name__ == '__main__':
    end_process(main())
