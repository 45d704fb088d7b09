"""Flows used only by `boom.admin`: reports and changes of groups, subscriptions and transactions."""
