"""Decisions on transactions and half messages, in the queues that they concern."""
