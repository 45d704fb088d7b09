"""Listeners: messages are passed to functions, by queue or by key."""
