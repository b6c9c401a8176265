"""The search attributes by which agents' workflows are found. Their names are in namespaces for ever."""

from __future__ import annotations

from typing import Final

from temporalio import workflow
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes

AGENT: Final = SearchAttributeKey.for_keyword('HarnessAgent')
CONVERSATION: Final = SearchAttributeKey.for_keyword('HarnessConversation')
PARENT_RUN: Final = SearchAttributeKey.for_keyword('HarnessParentRun')
STATUS: Final = SearchAttributeKey.for_keyword('HarnessStatus')
WAITING_FOR_APPROVAL: Final = SearchAttributeKey.for_bool('HarnessWaitingForApproval')

_LONGEST: Final = 255
"""Characters of a keyword that every visibility store of Temporal takes."""


def at_start(agent: str) -> TypedSearchAttributes:
    """Return the attributes that a client starts a workflow with."""
    return TypedSearchAttributes([SearchAttributePair(AGENT, agent[:_LONGEST]), SearchAttributePair(STATUS, 'running')])


def at_opening(agent: str, thread_id: str) -> TypedSearchAttributes:
    """Return the attributes that a client opens a thread with."""
    return TypedSearchAttributes(
        [
            SearchAttributePair(AGENT, agent[:_LONGEST]),
            SearchAttributePair(CONVERSATION, thread_id[:_LONGEST]),
            SearchAttributePair(STATUS, 'idle'),
            SearchAttributePair(WAITING_FOR_APPROVAL, False),
        ]
    )


def tell_begun(*, conversation_id: str, parent_run_id: str | None) -> None:
    """Set what is known once the run has begun. Called in workflow code."""
    updates = [CONVERSATION.value_set(conversation_id[:_LONGEST])]
    if parent_run_id is not None:
        updates.append(PARENT_RUN.value_set(parent_run_id[:_LONGEST]))
    workflow.upsert_search_attributes(updates)  # pyright: ignore[reportUnknownMemberType]


def tell_status(status: str, *, waiting_for_approval: bool) -> None:
    """Set what the workflow does now. Called in workflow code."""
    updates = [STATUS.value_set(status), WAITING_FOR_APPROVAL.value_set(waiting_for_approval)]
    workflow.upsert_search_attributes(updates)  # pyright: ignore[reportUnknownMemberType]


def tell_change(status: str, *, waiting_for_approval: bool) -> None:
    """Set what the workflow does now, if that is not set already: each change is an event of the history.

    Called in workflow code. What earlier workflow runs set goes along when a workflow continues as new.
    """
    present = workflow.info().typed_search_attributes
    if (present.get(STATUS), present.get(WAITING_FOR_APPROVAL)) != (status, waiting_for_approval):
        tell_status(status, waiting_for_approval=waiting_for_approval)
