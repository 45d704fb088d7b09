"""Listeners: messages handed to functions, by queue or by key."""
