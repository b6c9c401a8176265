"""`python -m workers`."""

from __future__ import annotations

import asyncio
import logging
import sys

from harness_temporal.errors import ConfigurationError
from workers.agent_worker import run_worker
from workers.settings import WorkerSettings


def main() -> None:
    """Run the worker that the environment describes."""
    logging.basicConfig(level=logging.INFO, format='%(asctime)s %(levelname)s %(name)s: %(message)s')
    try:
        asyncio.run(run_worker(WorkerSettings.from_environment()))
    except ConfigurationError as error:
        sys.exit(f'error: {error}')


if __name__ == '__main__':
    main()
