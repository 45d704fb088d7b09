"""Batches that wait in a queue for their time."""
