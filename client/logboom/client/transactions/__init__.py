"""Transactions, half messages and decisions, without their skins."""
