"""Salvage: reading what the files of a damaged store still hold, and restoring it."""
