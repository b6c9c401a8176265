"""`python -m workers.set_up`: makes the namespace and the search attributes. Doing it again changes nothing."""

from __future__ import annotations

import argparse
import asyncio
import sys
from datetime import timedelta

from temporalio.service import RPCError

from harness_temporal.errors import ConfigurationError
from harness_temporal.hosting.connection import connect
from harness_temporal.hosting.ending import end_process
from harness_temporal.hosting.logs import configure_logging
from harness_temporal.hosting.namespace import DEFAULT_RETENTION, set_up
from harness_temporal.hosting.settings import TemporalSettings
from workers.connection import telemetry_runtime


async def _run(settings: TemporalSettings, retention: timedelta) -> None:
    client = await connect(settings, runtime=telemetry_runtime(None))
    await set_up(client, retention=retention)


def main() -> int:
    """Set up the namespace that `harness.toml` and the environment name, and return the exit status."""
    parser = argparse.ArgumentParser(prog='python -m workers.set_up', description=__doc__)
    days = DEFAULT_RETENTION.days
    parser.add_argument('--retention-days', type=int, default=days, help=f'of a new namespace; {days} by default')
    arguments = parser.parse_args()
    configure_logging('INFO', 'auto')
    try:
        asyncio.run(_run(TemporalSettings.load(), timedelta(days=arguments.retention_days)))
    except (ConfigurationError, RPCError) as error:
        print(f'error: {error}', file=sys.stderr)
        return 1
    return 0


if __name__ == '__main__':
    end_process(main())
