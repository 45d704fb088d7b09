"""The exporter over HTTP: GET /metrics, alone, or as a page of the console."""

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


async def scrape(exporter: ClusterExporter, request: Request) -> Response:
    """Return the metrics, in the format that the request accepts."""
    text, content_type = await exporter.metrics(request.headers.get("accept", ""))
    return Response(text, headers={"content-type": content_type, "cache-control": "no-store"})


def scrape_routes(exporter: ClusterExporter) -> list[Route]:
    """Return the routes of an exporter that runs alone."""

    async def metrics(request: Request) -> Response:
        return await scrape(exporter, request)

    async def index(_: Request) -> Response:
        return HTMLResponse(INDEX)

    return [Route("/metrics", metrics), Route("/", index)]
