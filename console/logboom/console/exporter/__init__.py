"""The exporter: metrics of topics, queues, groups and subscriptions, once for a whole cluster."""
