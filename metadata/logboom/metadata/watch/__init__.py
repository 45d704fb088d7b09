"""WATCH: who follows the metadata, and what they are told."""
