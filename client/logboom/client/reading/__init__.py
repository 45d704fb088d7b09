"""Reading queues ahead of their reader."""
