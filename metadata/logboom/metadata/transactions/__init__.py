"""Decisions on transactions in the replicated state."""
