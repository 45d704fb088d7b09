"""Consumer groups in the replicated state."""
