"""What works where no extra is installed."""

from __future__ import annotations

from tests.unit.test_imports import EXTRAS, run_without


def test_names_can_be_imported_and_stores_say_which_extra_they_need() -> None:
    code = """
from harness_temporal.conversations import *
from harness_temporal.step_persistence.conversations import *
from harness_temporal.step_persistence.naming import SessionNamer, generate_name
from harness_temporal.step_persistence.conversations import MongoConversationStore, PostgresConversationStore
from harness_temporal.errors import ConfigurationError
for make in (
    lambda: PostgresConversationStore('postgresql://localhost/app'),
    lambda: MongoConversationStore(db_url='mongodb://localhost'),
):
    try:
        make()
    except ConfigurationError as error:
        print(error)
"""
    assert run_without(EXTRAS, code).splitlines() == [
        "`PostgresConversationStore` needs asyncpg: install 'harness-temporal[postgres]'.",
        "`MongoConversationStore` needs pymongo: install 'harness-temporal[mongo]'.",
    ]
