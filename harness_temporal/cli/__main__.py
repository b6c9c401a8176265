"""`python -m harness_temporal.cli`."""

from __future__ import annotations

from harness_temporal.cli import main

main()
