"""Users, roles and access rules in the replicated state."""
