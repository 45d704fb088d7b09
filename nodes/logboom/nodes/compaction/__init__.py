"""Compaction: the latest message of each key, for readers of compacted topics."""
