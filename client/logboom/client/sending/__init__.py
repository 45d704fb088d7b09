"""From `send` to acknowledged batches."""
