"""Subscriptions: the broker decides which consumer gets what, and keeps what was acknowledged."""
