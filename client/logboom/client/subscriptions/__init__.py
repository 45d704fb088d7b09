"""Consumers of subscriptions, without their skins."""
