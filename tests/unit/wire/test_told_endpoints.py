"""A client is told one endpoint of each node, and a node dials by CURVE if both sides can."""

from __future__ import annotations

from logboom.wire.listeners import ListenerView
from logboom.wire.told_endpoints import endpoints_dialled, endpoints_told
from logboom.wire.view import BrokerView, NameServerView, View

OPEN = ListenerView("inside", "10.0.0.1:1", "none")
CURVE = ListenerView("outside", "h.test:1", "curve")
PLAIN_BROKER = BrokerView("broker-1", "10.0.0.9:1", "", 1, True, 1)
BROKER = BrokerView("broker-2", "10.0.0.1:1", "", 1, True, 1, [OPEN, CURVE], ["key"])
NO_KEYS = BrokerView("broker-3", "10.0.0.1:1", "", 1, True, 1, [OPEN, CURVE])
ONLY_CURVE = BrokerView("broker-4", "h.test:1", "", 1, True, 1, [CURVE], ["key"])
SERVER = NameServerView("name-1", "10.0.0.1:1", [OPEN, CURVE], ["key"])


def view(*brokers: BrokerView) -> View:
    """A view of some brokers and a name server."""
    return View(1, True, "c", [*brokers], [], [], [], [SERVER], None)


def test_a_client_is_told_the_listener_that_it_came_by_and_no_other() -> None:
    told = endpoints_told(view(PLAIN_BROKER, BROKER), "outside", "curve")
    assert [b.endpoint for b in told.brokers] == ["10.0.0.9:1", "h.test:1"]
    assert told.name_servers == [NameServerView("name-1", "h.test:1", [], ["key"])]
    assert not any(b.listeners for b in told.brokers)
    assert told.brokers[1].keys == ["key"]
    told = endpoints_told(view(PLAIN_BROKER, BROKER), "main", "none")
    assert [b.endpoint for b in told.brokers] == ["10.0.0.9:1", "10.0.0.1:1"]
    alone = View(1, True, "c", [PLAIN_BROKER], [], [], [], [], None)
    assert endpoints_told(alone, "main", "none") is alone


def test_a_node_dials_by_curve_if_it_has_keys_and_the_other_has_too() -> None:
    everyone = view(PLAIN_BROKER, BROKER, NO_KEYS, ONLY_CURVE)
    dialled = endpoints_dialled(everyone, encrypt=True)
    assert [b.endpoint for b in dialled.brokers] == [
        "10.0.0.9:1",
        "h.test:1",
        "10.0.0.1:1",
        "h.test:1",
    ]
    assert dialled.name_servers[0].endpoint == "h.test:1"
    # It still knows what to tell clients.
    assert dialled.brokers[1].listeners == [OPEN, CURVE]
    plain = endpoints_dialled(everyone, encrypt=False)
    assert [b.endpoint for b in plain.brokers] == [
        "10.0.0.9:1",
        "10.0.0.1:1",
        "10.0.0.1:1",
        "h.test:1",
    ]
