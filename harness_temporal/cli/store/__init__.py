"""`harness-temporal store`: look after a store."""
