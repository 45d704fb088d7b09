"""Users, roles and access rules: the replicated records, the commands, and the decision."""
