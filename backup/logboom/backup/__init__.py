"""Backups of a cluster, in a folder or an object store: written, read, checked and pruned."""
