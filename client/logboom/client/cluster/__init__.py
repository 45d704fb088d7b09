"""What a client knows of the cluster, and how it asks."""
