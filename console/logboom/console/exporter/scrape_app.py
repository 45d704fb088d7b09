"""The exporter over HTTP: GET /metrics, alone or among the routes of another application."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from logboom.console.exporter.cluster_sampler import ClusterExporter

INDEX: Final = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>logboom exporter</title>
<p>The metrics of a logboom cluster: <a href="/metrics">/metrics</a></p></html>
"""


def metrics_route(exporter: ClusterExporter) -> Route:
    """Return the route GET /metrics."""

    async def answer(request: Request) -> Response:
        text, content_type = await exporter.metrics(request.headers.get("accept", ""))
        return Response(text, headers={"content-type": content_type, "cache-control": "no-store"})

    return Route("/metrics", answer)


def scrape_routes(exporter: ClusterExporter) -> list[Route]:
    """Return the routes of an exporter that runs alone."""

    async def index(_: Request) -> Response:
        return HTMLResponse(INDEX)

    return [metrics_route(exporter), Route("/", index)]
