"""Duties of the Raft leader besides committing."""
