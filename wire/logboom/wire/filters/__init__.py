"""Filters of messages: parsed once, evaluated on columns, and used to skip whole batches."""

from logboom.wire.filters.filter import Filter, Match, Matcher, ScanBudget, read_matcher

__all__ = ["Filter", "Match", "Matcher", "ScanBudget", "read_matcher"]
