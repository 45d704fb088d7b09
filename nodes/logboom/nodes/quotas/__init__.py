"""Quotas of users, as far as brokers alone keep them; `wire.quotas` delays requests at all nodes."""
