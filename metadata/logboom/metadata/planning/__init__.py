"""The planning of moves: what brokers hold, what is to be moved, and why nothing moves."""
