"""Spark jobs, as far as the cluster knows of them."""

from __future__ import annotations

from typing import Final

from logboom.client.results import NodeConnections
from logboom.console.pages.pipeline_page import PipelineModel, build_pipeline
from logboom.console.routes.transaction_routes import open_transactions
from logboom.console.site import NavigationEntry, PageRequest, PageRoute, Subject
from logboom.wire.errors import LogboomError

CONNECTIONS: Final = 5_000
"""Connections of a node that are looked at."""


async def _connections(request: PageRequest) -> list[NodeConnections]:
    admin = request.cluster.boom.admin
    try:
        return await request.cluster.cached(
            "connections", lambda: admin.connections(limit=CONNECTIONS), 5.0
        )
    except LogboomError as error:
        # Not everybody may see the connections; the rest is shown all the same.
        return [NodeConnections("all nodes", [], 0, error.text or str(error))]


async def load_pipeline(request: PageRequest) -> PipelineModel:
    """Ask for what is known of Spark jobs."""
    survey = await request.cluster.consumers.survey()
    open_now = await open_transactions(request)
    return build_pipeline(
        survey,
        request.cluster.consumers.history,
        open_now.transactions,
        await _connections(request),
        request.now_ms,
        request.query,
    )


SUBJECT: Final = Subject(
    pages=(PageRoute("/pipeline", load_pipeline, "pipeline.html"),),
    navigation=(NavigationEntry("Pipeline", "/pipeline", 100),),
)
