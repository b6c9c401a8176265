"""The rules of conversation stores (step-persistence seed, "Conversation heads and background names")."""

from __future__ import annotations

from harness_temporal.testing.conversations.base import OpenPlace, Place
from harness_temporal.testing.conversations.deleting import DeletingConformance
from harness_temporal.testing.conversations.lifetime import LifetimeConformance
from harness_temporal.testing.conversations.naming import NamingConformance
from harness_temporal.testing.conversations.saving import SavingConformance
from harness_temporal.testing.conversations.searching import SearchingConformance

__all__ = ['ConversationStoreConformance', 'OpenPlace', 'Place']


class ConversationStoreConformance(
    SavingConformance, SearchingConformance, NamingConformance, DeletingConformance, LifetimeConformance
):
    """Every topic. Derive from it, provide `open_place`, and declare `busy_by`."""
