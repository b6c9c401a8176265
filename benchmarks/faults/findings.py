"""What a campaign finds."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Findings:
    """What does not hold, by kind."""

    lost_runs: list[str] = field(default_factory=list[str])
    double_effects: list[str] = field(default_factory=list[str])
    unreported_effects: list[str] = field(default_factory=list[str])
    inconsistencies: list[str] = field(default_factory=list[str])
    replay_failures: list[str] = field(default_factory=list[str])
