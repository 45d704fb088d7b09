"""Copies of a queue on several brokers: leaders feed, followers fetch, the ISR, damage and healing."""
