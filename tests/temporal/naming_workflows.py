"""Workflows that have conversations named."""

from __future__ import annotations

from temporalio import workflow

from harness_temporal.temporal.naming import NamingOutput, name_conversation, name_messages
from harness_temporal.testing.samples import asks, returns


@workflow.defn
class NamesASavedConversation:
    @workflow.run
    async def run(self, conversation_id: str) -> str | None:
        name = await name_conversation(conversation_id)
        return None if name is None else name.title


@workflow.defn
class NamesItsOwnMessages:
    @workflow.run
    async def run(self, text: str) -> NamingOutput:
        return await name_messages([asks('old ' * 5000), returns('output'), asks(text)], title='Before')
