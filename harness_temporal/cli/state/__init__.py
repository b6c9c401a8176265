"""`harness-temporal state`: carry a thread in a file."""
