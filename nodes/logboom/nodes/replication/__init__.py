"""Replication of a queue: leaders serve, followers fetch, the ISR, damage and its repair."""
