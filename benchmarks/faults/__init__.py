"""`python -m benchmarks.faults`: many agent runs on workers that a nemesis kills. See docs/faults.md."""
