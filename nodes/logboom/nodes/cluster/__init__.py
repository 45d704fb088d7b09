"""The connection of a broker to its cluster: registration, lease, metadata and proposals."""
