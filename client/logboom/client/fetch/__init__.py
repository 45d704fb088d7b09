"""The reading half of the core: fetches, buffers, collectors."""
