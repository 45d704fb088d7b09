"""The replicated log of a queue: its entries, its ends, its index, and the storage protocol."""
