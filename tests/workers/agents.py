"""What a deployed worker imports: agents and payloads, made from the environment."""

from __future__ import annotations

import os
from pathlib import Path

from harness_temporal.media import DiskMediaStore
from harness_temporal.step_persistence import SqliteStepStore
from harness_temporal.temporal.payloads import PayloadStorage
from tests.temporal import scenarios
from tests.workers.folder import FOLDER_VARIABLE

folder = Path(os.environ[FOLDER_VARIABLE])
scripted, *_ = scenarios.agents(SqliteStepStore(folder / 'runs.db'), folder)
payloads = PayloadStorage(DiskMediaStore(folder / 'payloads'))
