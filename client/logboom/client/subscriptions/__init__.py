"""Consumers of subscriptions, independent of threads and asyncio."""
