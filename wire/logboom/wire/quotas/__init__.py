"""Quotas of users: requests beyond them are served late, and none is dropped."""
