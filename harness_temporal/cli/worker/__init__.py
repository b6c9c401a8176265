"""`harness-temporal worker`: runs agents."""
