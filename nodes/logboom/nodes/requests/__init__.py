"""Requests of producers and readers to a queue's leader."""
