"""Durable Pydantic AI agents on Temporal."""
