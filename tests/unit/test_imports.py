"""What works where no extra is installed, in processes that cannot import the extras' packages."""

from __future__ import annotations

import subprocess
import sys

EXTRAS = ['asyncpg', 'pymongo', 'boto3', 'typer', 'rich', 'prometheus_client', 'pydantic_settings', 'opentelemetry.sdk']


def run_without(packages: list[str], code: str) -> str:
    """Run a program and return what it prints. Warnings are errors."""
    hidden = f'import sys\nsys.modules.update(dict.fromkeys({packages!r}))\n'
    command = [sys.executable, '-W', 'error', '-c', hidden + code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_public_names_can_be_imported_without_any_extra() -> None:
    code = """
import harness_temporal
from harness_temporal import *
from harness_temporal.stores import *
from harness_temporal.step_persistence import *
from harness_temporal.media import *
from harness_temporal.observability import *
from harness_temporal.media import MongoMediaStore, PostgresMediaStore, S3MediaStore
from harness_temporal.memory import *
from harness_temporal.memory import MongoMemoryStore, PostgresMemoryStore
from harness_temporal.stores import MongoStepStore
import harness_temporal.cli
import harness_temporal.importers
import harness_temporal.stores.postgres
from harness_temporal.stores import PostgresStepStore
from harness_temporal.step_persistence import PostgresStepStore
print(*sorted(name for name in globals() if name.endswith('Store')))
"""
    stores = ['InMemoryStepStore', 'PostgresStepStore', 'SqliteStepStore', 'StepStore']
    assert set(stores) <= set(run_without(EXTRAS, code).split())


def test_media_store_without_its_driver_says_which_extra_to_install() -> None:
    code = """
from harness_temporal.errors import ConfigurationError
from harness_temporal.media import MongoMediaStore, PostgresMediaStore, S3MediaStore
for make in (
    lambda: PostgresMediaStore('postgresql://localhost/runs'),
    lambda: MongoMediaStore(db_url='mongodb://localhost'),
    lambda: S3MediaStore(bucket='b'),
):
    try:
        make()
    except ConfigurationError as error:
        print(str(error).partition("install '")[2].partition("'")[0])
"""
    extras = [f'harness-temporal[{extra}]' for extra in ('postgres', 'mongo', 's3')]
    assert run_without(EXTRAS, code).split() == extras


def test_store_without_its_driver_says_which_extra_to_install() -> None:
    code = """
from harness_temporal.errors import ConfigurationError
from harness_temporal.stores.postgres import PostgresStepStore
try:
    PostgresStepStore('postgresql://localhost/runs')
except ConfigurationError as error:
    print(error)
"""
    message = "`PostgresStepStore` needs asyncpg: install 'harness-temporal[postgres]'."
    assert run_without(['asyncpg'], code).strip() == message


def test_metrics_without_their_client_say_which_extra_to_install() -> None:
    code = """
from harness_temporal.errors import ConfigurationError
from harness_temporal.observability import HarnessMetrics
try:
    HarnessMetrics()
except ConfigurationError as error:
    print(error)
"""
    message = "`HarnessMetrics` needs prometheus-client: install 'harness-temporal[metrics]'."
    assert run_without(['prometheus_client'], code).strip() == message
