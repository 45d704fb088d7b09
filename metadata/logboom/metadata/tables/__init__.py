"""The tables of the replicated state: what is registered, which commands change and which views show."""
