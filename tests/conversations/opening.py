"""Opening stores by what a command line can carry."""

from __future__ import annotations

from harness_temporal.testing import Place


def open_place(kind: str, where: str, name: str = '') -> Place:
    from harness_temporal import conversations, stores

    match kind:
        case 'sqlite':
            return Place(conversations.SqliteConversationStore(where), stores.SqliteStepStore(where))
        case 'postgres':
            return Place(
                conversations.PostgresConversationStore(where, schema=name),
                stores.PostgresStepStore(where, schema=name),
            )
        case _:
            return Place(
                conversations.MongoConversationStore(db_url=where, database=name),
                stores.MongoStepStore(db_url=where, database=name),
            )
