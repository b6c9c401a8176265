"""The demo: an agent run that survives its worker's death."""
