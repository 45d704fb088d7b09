"""The name server: the replicated state of a cluster, and the Raft group that keeps it."""
