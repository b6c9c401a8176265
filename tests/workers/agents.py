"""What a deployed worker imports: agents, payloads and conversations, made from the environment."""

from __future__ import annotations

import os
from pathlib import Path

from harness_temporal.conversations import SqliteConversationStore
from harness_temporal.media import DiskMediaStore
from harness_temporal.step_persistence import SqliteStepStore
from harness_temporal.temporal.payloads import PayloadStorage
from tests.temporal import scenarios
from tests.workers.folder import FOLDER_VARIABLE

folder = Path(os.environ[FOLDER_VARIABLE])
scripted, *_ = scenarios.agents(SqliteStepStore(folder / 'runs.db'), folder)
conversations = SqliteConversationStore(folder / 'runs.db')
payloads = PayloadStorage(DiskMediaStore(folder / 'payloads'))
