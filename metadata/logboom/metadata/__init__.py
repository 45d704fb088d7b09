"""The name server: the replicated state of a cluster, and the raft group that keeps it."""
