"""The sending half of the core: batches, flow control, acknowledgements."""
