"""Numbers and choices that make no sense are refused before anybody is asked, and so without --yes too."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import NoReturn

import pytest

from logboom.cli import connection_commands, dlq_commands, message_commands
from logboom.cli.connection_commands import list_connections
from logboom.cli.dlq_commands import redrive, show_messages
from logboom.cli.message_commands import find
from logboom.wire.errors import InvalidRequest


@pytest.fixture(autouse=True)
def nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no command reach a cluster."""

    def refuse(_: object) -> NoReturn:
        raise AssertionError("a cluster was asked")

    for module in (connection_commands, dlq_commands, message_commands):
        monkeypatch.setattr(module, "open_client", refuse)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (partial(list_connections, limit=0), "--limit is 1 or more, not 0"),
        (partial(find, "flights", key="UA", limit=-5), "--limit is 1 or more, not -5"),
        (partial(show_messages, "billing", count=0), "--count is 1 or more, not 0"),
        (partial(redrive, "billing", count=0), "--count is 1 or more, not 0"),
        (partial(redrive, "billing", rate=-1.0), "--rate is 0 or more"),
        (partial(redrive, "billing", rate=math.nan), "--rate is 0 or more"),
        (partial(redrive, "billing", rate=math.inf), "--rate is 0 or more"),
        (partial(redrive, "billing", value="x"), "say --at once"),
        (partial(redrive, "billing", value="x", at=["0/1", "0/2"]), "say --at once"),
        (partial(redrive, "billing", at=["0/1"], queue="0"), "--at, or --queue and --count"),
        (partial(redrive, "billing", at=["0/1"], count=1), "--at, or --queue and --count"),
        (partial(redrive, "billing", at=["0/1"], cause="bank"), "--at or --cause"),
        (partial(redrive, "billing", at=["0-1"]), "queue/offset"),
        (partial(redrive, "billing", at=["0/²"]), "queue/offset"),
        (partial(redrive, "billing", at=["0/1"], value="x", value_base64="eA=="), "--value-base64"),
        (partial(redrive, "billing", at=["0/1"], value_base64="x"), "no base64"),
    ],
)
def test_it_is_refused_at_once(command: Callable[[], object], said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        command()


def test_no_node_that_answers_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def answers(*errors: str) -> None:
        nodes = [
            SimpleNamespace(node=f"broker-{number}", error=error, connections=[], total=0)
            for number, error in enumerate(errors, 1)
        ]
        admin = SimpleNamespace(connections=lambda *_, **__: nodes)
        monkeypatch.setattr(
            connection_commands,
            "open_client",
            lambda _: _Opened(SimpleNamespace(admin=admin)),
        )

    answers("no answer", "no answer")
    assert list_connections() == 1
    assert capsys.readouterr() == ("", "broker-1, broker-2: no answer\n")
    answers("no answer", "")
    assert list_connections() == 0
    out, err = capsys.readouterr()
    assert out.startswith("NODE")
    assert err == "broker-1: no answer\n"


class _Opened:
    """A client in a `with`."""

    def __init__(self, boom: object) -> None:
        self._boom = boom

    def __enter__(self) -> object:
        return self._boom

    def __exit__(self, *_: object) -> None:
        pass
