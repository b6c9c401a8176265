"""`harness-temporal dev`: a Temporal server, its UI, a store and a worker, all on this machine."""
