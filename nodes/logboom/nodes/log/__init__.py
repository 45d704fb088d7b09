"""One queue's replicated log: its entries, its ends, its index, and reading it."""
