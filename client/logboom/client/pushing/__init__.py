"""Push consumers: which worker gets which messages."""
