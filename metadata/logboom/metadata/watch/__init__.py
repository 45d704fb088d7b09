"""WATCH: requests that follow the metadata, and their answers."""
