"""Tracing and metrics by the OpenTelemetry API, for producers and consumers that ask for it."""
