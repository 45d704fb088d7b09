"""All subjects of the console; a new one is added here."""

from __future__ import annotations

from typing import Final

from logboom.console.routes import (
    access_routes,
    broker_routes,
    connection_routes,
    consumer_group_routes,
    dead_letter_routes,
    message_routes,
    name_server_routes,
    overview_routes,
    pipeline_routes,
    replica_routes,
    setting_routes,
    subscription_routes,
    topic_routes,
    transaction_routes,
)
from logboom.console.site import Subject

SUBJECTS: Final[tuple[Subject, ...]] = (
    overview_routes.SUBJECT,
    topic_routes.SUBJECT,
    message_routes.SUBJECT,
    consumer_group_routes.SUBJECT,
    dead_letter_routes.SUBJECT,
    transaction_routes.SUBJECT,
    subscription_routes.SUBJECT,
    pipeline_routes.SUBJECT,
    broker_routes.SUBJECT,
    replica_routes.SUBJECT,
    name_server_routes.SUBJECT,
    connection_routes.SUBJECT,
    access_routes.SUBJECT,
    setting_routes.SUBJECT,
)
