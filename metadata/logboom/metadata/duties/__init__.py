"""What the raft leader does beside committing."""
