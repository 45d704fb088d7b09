"""The broker: replicas of queues on its disk, and everything that clients ask of them."""
