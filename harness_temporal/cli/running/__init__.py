"""`harness-temporal run`, `resume` and `fork`: start a run, and wait for its answer."""
