"""The strategies of `logboom.metadata.allocate`."""
