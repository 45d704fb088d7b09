"""Filters of messages: parsed once, evaluated on columns, and used to skip whole batches."""
