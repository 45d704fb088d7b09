"""The latest message of each key, for readers of compacted topics."""
