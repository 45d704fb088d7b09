"""The Raft group: PySyncObj wrapped so that it keeps what it commits."""
