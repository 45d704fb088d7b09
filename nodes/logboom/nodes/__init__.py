"""The broker: replicas of queues on disk, and everything that clients and other brokers request."""
