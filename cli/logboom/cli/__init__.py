"""The `logboom` command: one module for each command, and the modules that they share."""
