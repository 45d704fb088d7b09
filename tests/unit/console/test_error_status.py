"""HTTP statuses of errors: what the viewer asked wrong, may not do, or what the cluster cannot do now."""

from __future__ import annotations

import pytest

from logboom.console.web_app import status_of
from logboom.wire.errors import InvalidRequest, error_for


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("INVALID_ARGUMENT", 400),
        ("INVALID_FILTER", 400),
        ("TOO_LARGE", 400),
        ("UNAUTHENTICATED", 403),
        ("FORBIDDEN", 403),
        ("UNKNOWN_TOPIC", 404),
        ("UNKNOWN_ROLE", 404),
        ("UNKNOWN_HANDLES", 404),
        ("TOPIC_EXISTS", 409),
        ("TOO_FEW_BROKERS", 409),
        ("GROUP_NOT_EMPTY", 409),
        ("TRANSACTION_CLOSED", 409),
        ("UNAVAILABLE", 503),
        ("NOT_LEADER", 503),
        ("TIMED_OUT", 503),
        ("INTERNAL", 503),
    ],
)
def test_an_error_has_the_status_of_its_kind(code: str, status: int) -> None:
    assert status_of(error_for(code, "no", {})) == status


def test_a_plan_that_cannot_be_has_the_status_that_the_cluster_would_answer() -> None:
    assert status_of(InvalidRequest("no", "TOO_FEW_BROKERS")) == 409
    assert status_of(InvalidRequest("no", "UNKNOWN_BROKER")) == 404
