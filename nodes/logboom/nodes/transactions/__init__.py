"""Batches that wait in a queue for a decision, and its carrying out."""
