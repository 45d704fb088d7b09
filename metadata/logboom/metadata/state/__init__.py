"""The replicated state machine: the commands that change the tables of the cluster."""
