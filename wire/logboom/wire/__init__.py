"""What every node and client speaks: messages, frames, batches, errors; sessions and sockets."""
