"""Transactions, half messages and decisions, independent of threads and asyncio."""
