"""The data that a broker keeps for one queue: log, leadership, cursors, parked entries, compaction."""
