"""Checks of a cluster: what is wrong, and what remedies it; for `logboom doctor` and the console."""
