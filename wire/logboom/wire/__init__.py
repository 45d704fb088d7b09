"""The protocol of all nodes and clients: messages, batches, errors, sessions and sockets."""
