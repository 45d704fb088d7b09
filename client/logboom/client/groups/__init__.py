"""Members of consumer groups, and what the admin does with groups."""
