"""The web console, and what a cluster tells monitoring systems: the exporter, dashboards and alerts."""
