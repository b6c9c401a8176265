"""`harness-temporal threads`, `approve` and `deny`: talk to long-lived threads."""
