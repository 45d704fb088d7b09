"""The replicated state: tables of brokers, topics and queues, and the commands that change them."""
