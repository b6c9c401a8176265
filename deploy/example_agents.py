"""Agents for `compose.yaml`: one keeps its runs in PostgreSQL, one in MongoDB; large payloads go to MinIO.

Their model is Pydantic AI's test model, which needs no key. `EXAMPLE_MODEL=openai:gpt-5` takes a real one, if its
client is in the image.
"""

from __future__ import annotations

import os

from pydantic_ai import Agent

from harness_temporal import HarnessDurability, StepPersistence, recovery_retryable
from harness_temporal.media import S3MediaStore
from harness_temporal.stores.opening import open_store
from harness_temporal.temporal.payloads import KeyRing, PayloadStorage

MODEL = os.environ.get('EXAMPLE_MODEL', 'test')


@recovery_retryable
async def look_up(title: str) -> str:
    """Look a book up."""
    return f'{title} is on shelf 7.'


async def lend(title: str) -> str:
    """Lend a book. It happens once, whatever dies."""
    return f'{title} is lent.'


def agent(name: str, store: str) -> Agent[None, str]:
    """Make an agent whose runs are in the store that `store` names."""
    persistence = StepPersistence[None](store=open_store(store), agent_name=name)
    return Agent(MODEL, name=name, tools=[look_up, lend], capabilities=[persistence, HarnessDurability()])


librarian = agent('librarian', os.environ['EXAMPLE_POSTGRES'])
archivist = agent('archivist', os.environ['EXAMPLE_MONGO'])
# The credentials are where boto3 finds them.
payloads = PayloadStorage(
    S3MediaStore(bucket=os.environ['EXAMPLE_BUCKET'], endpoint=os.environ.get('EXAMPLE_S3'), region='us-east-1'),
    keys=KeyRing.from_environment() if os.environ.get('HARNESS_PAYLOAD_KEYS') else None,
)
