"""`harness-temporal runs`: what a store keeps of runs."""
