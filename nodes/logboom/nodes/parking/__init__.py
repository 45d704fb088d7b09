"""Messages that wait for a time: their release, recall and relocation."""
