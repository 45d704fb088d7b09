"""Endpoints: one rule for what is dialled and what is bound, in one line."""

from __future__ import annotations

import pytest
import zmq
from hypothesis import given
from hypothesis import strategies as st

from logboom.wire.endpoints import endpoint_fault, is_wildcard, listen_fault, may_be_dialled


@pytest.mark.parametrize(
    "text",
    [
        "127.0.0.1:7711",
        "localhost:1",
        "broker-1.example.org:65535",
        "Broker_1.example.org.:07711",
        "xn--tda.example:7711",
        "eth0:7711",
        "[::1]:7711",
        "[fe80::1%eth0]:7711",
        "a" * 253 + ":1",
    ],
)
def test_what_can_be_dialled(text: str) -> None:
    assert endpoint_fault(text) is None
    assert listen_fault(text) is None
    assert may_be_dialled(text)


WRONG = [
    ("", "port"),
    ("7711", "port"),
    ("host:", "port"),
    ("host:x", "port"),
    ("host:-1", "port"),
    ("host:+1", "port"),
    ("host:1_0", "port"),
    ("host:65536", "port is no number from"),
    ("host:99999", "port"),
    ("host:" + "1" * 5000, "port"),
    ("host:²", "port"),
    ("host:٣", "port"),
    ("host:1 ", "port"),
    (":7711", "no host"),
    ("tcp://host:7711", "leave out tcp://"),
    ("https://host:7711", "leave out https://"),
    ("user@host:1", "leave out the user"),
    (" host:1", "neither a name nor an address"),
    ("ho st:1", "neither"),
    ("host\n:1", "neither"),
    ("host\0:1", "neither"),
    ("a;b:1", "neither"),
    ("a/b:1", "neither"),
    ("-host:1", "neither"),
    ("_host:1", "neither"),
    ("a..b:1", "neither"),
    ("h,b:1", "neither"),
    ("ü.example:1", "not ASCII"),
    ("\udcff:1", "not ASCII"),
    ("::1:7711", "brackets"),
    ("fe80::1%eth0:7711", "brackets"),
    ("[host]:1", "no IPv6 address"),
    ("[127.0.0.1]:1", "no IPv6 address"),
    ("[::1%]:1", "no IPv6 address"),
    ("[::1%a b]:1", "no IPv6 address"),
    ("256.1.1.1:1", "no IPv4 address"),
    ("1.2.3.4.5:1", "no IPv4 address"),
    ("a" * 254 + ":1", "longer than 253"),
]


@pytest.mark.parametrize(("text", "words"), WRONG)
def test_what_cannot_be_dialled_is_refused_in_one_line(text: str, words: str) -> None:
    for fault in (endpoint_fault(text), listen_fault(text)):
        assert fault is not None
        assert words in fault
        assert "write host:port" in fault
        assert "\n" not in fault
        assert len(fault) < 400
    assert not may_be_dialled(text)


@pytest.mark.parametrize("text", ["*:1", "0.0.0.0:1", "[::]:1"])
def test_a_wildcard_is_bound_and_not_dialled(text: str) -> None:
    assert is_wildcard(text)
    assert listen_fault(text) is None
    assert "host:port" in (endpoint_fault(text) or "")


def test_port_0_is_bound_and_not_dialled() -> None:
    assert listen_fault("127.0.0.1:0") is None
    assert "from 1 to 65535" in (endpoint_fault("127.0.0.1:0") or "")


@given(st.text("h1.:-_[]@*/%;\\ \n\0ü²٣", max_size=12) | st.text(max_size=8))
def test_whatever_passes_zeromq_takes(text: str) -> None:
    for each in (text, f"{text}:1"):
        if may_be_dialled(each):
            with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
                socket.setsockopt(zmq.LINGER, 0)
                socket.connect(f"tcp://{each}")
