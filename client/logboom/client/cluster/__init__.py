"""A client's view of its cluster, and the requests that it sends to the nodes."""
