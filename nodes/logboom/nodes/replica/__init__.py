"""Everything that a broker keeps for one queue: its log, its leadership, its cursors and parked entries."""
