"""What `logboom generate` writes: dashboards, alerts and scrape jobs, from tables."""
