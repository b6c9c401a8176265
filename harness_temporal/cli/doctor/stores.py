"""Checks of stores, payloads and agents."""

from __future__ import annotations

from collections.abc import Sequence

from temporalio.api.common.v1 import Payload

from harness_temporal.cli.doctor.checks import Found
from harness_temporal.cli.opening import named_store, opened_store
from harness_temporal.errors import ConfigurationError
from harness_temporal.hosting.answering import ask_conversation_store, ask_media_store, ask_store
from harness_temporal.hosting.settings import CallerSettings
from harness_temporal.hosting.worker import stores_of
from harness_temporal.media import MediaStore
from harness_temporal.step_persistence import InMemoryStepStore
from harness_temporal.stores.protocol import StepStore
from harness_temporal.temporal.agents import AgentRegistry


async def check_store(given: str | None) -> Found:
    """Whether the store of the command line answers, with its media store."""
    if given is None and named_store(given) is None:
        return Found('skipped', 'None is named (`--store`, HARNESS_STORE_URL, or `url` in [store]).')
    async with opened_store(given) as store:
        return Found('ok', await _answering([store], [store.media_store] if store.media_store is not None else []))


async def check_agents() -> Found:
    """Whether the agents can be imported, and their stores answer."""
    settings = CallerSettings.load()
    if not settings.agents:
        return Found('skipped', 'None is named (HARNESS_AGENTS, or `agents` in [worker]).')
    agents = settings.load_agents()
    registry = AgentRegistry()
    for agent in agents:
        registry.add(agent)
        store = registry.persistence(str(agent.name)).store
        if isinstance(store, InMemoryStepStore):
            raise ConfigurationError(
                f'Agent {agent.name!r} keeps its runs in memory, where they end with their worker. Give its '
                '`StepPersistence` a store.'
            )
    async with stores_of(agents, None) as (stores, media):
        answering = await _answering(stores, media)
    return Found('ok', f'{", ".join(str(agent.name) for agent in agents)}; {answering}')


async def check_conversations() -> Found:
    """Whether the store of conversations answers, with its media store."""
    conversations = CallerSettings.load().load_conversations()
    if conversations is None:
        return Found('skipped', 'None are named (HARNESS_CONVERSATIONS, or `conversations` in [worker]).')
    async with stores_of([], None, conversations) as (_, media):
        await ask_conversation_store(conversations)
        return Found('ok', f'{type(conversations).__name__} answers. {await _answering([], media)}'.rstrip())


async def check_payloads() -> Found:
    """Whether the payload storage encrypts and decrypts, and its media store answers."""
    storage = CallerSettings.load().load_payloads()
    if storage is None:
        return Found('skipped', 'None is named (HARNESS_PAYLOADS, or `payloads` in [worker]).')
    payload = Payload(metadata={'encoding': b'json/plain'}, data=b'"harness-doctor"')
    if await storage.codec.decode(await storage.codec.encode([payload])) != [payload]:
        raise ConfigurationError('The payload storage does not give back what it was given. Check its keys.')
    media = [storage.media_store] if storage.media_store is not None else []
    answering = await _answering([], media)
    return Found('ok', f'{"encrypted" if storage.encrypts else "not encrypted"}; {answering or "kept in histories."}')


async def _answering(stores: Sequence[StepStore], media_stores: Sequence[MediaStore]) -> str:
    for store in stores:
        await ask_store(store)
    for media_store in media_stores:
        await ask_media_store(media_store)
    names = ', '.join(dict.fromkeys(type(store).__name__ for store in (*stores, *media_stores)))
    return f'{names} answer.' if names else ''
