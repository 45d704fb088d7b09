"""The proxy between the nodes: it carries, holds back, delays, and leaves links half open."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from tests.chaos.links import CLIENT, ProxyLinks


@pytest.fixture
def links() -> Iterator[ProxyLinks]:
    """A proxy."""
    with ProxyLinks() as made:
        yield made


@pytest.fixture
def echo() -> Iterator[str]:
    """A server that sends back what it gets; its endpoint."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve(end: socket.socket) -> None:
            try:
                while content := end.recv(65_536):
                    end.sendall(content)
            except ConnectionError:
                pass
            finally:
                end.close()

        def accept() -> None:
            while True:
                try:
                    end, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=serve, args=[end], daemon=True).start()

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()


def dial(endpoint: str, source: str = "127.0.0.1") -> socket.socket:
    """A connection from an address; where nothing is to come, it waits for 0.3 s."""
    host, _, port = endpoint.rpartition(":")
    end = socket.create_connection((host, int(port)), timeout=200.0, source_address=(source, 0))
    end.settimeout(0.3)
    return end


def receive(end: socket.socket, count: int) -> bytes:
    """Exactly so many bytes."""
    content = b""
    end.settimeout(200.0)
    while len(content) < count:
        content += end.recv(count - len(content))
    end.settimeout(0.3)
    return content


def test_it_carries_both_ways(links: ProxyLinks, echo: str) -> None:
    content = bytes(range(256)) * 4_000
    with dial(links.front("broker-1", echo)) as end:
        end.settimeout(200.0)
        sender = threading.Thread(target=end.sendall, args=[content])
        sender.start()
        assert receive(end, len(content)) == content
        sender.join()


@pytest.mark.parametrize("way", [(CLIENT, "broker-1"), ("broker-1", CLIENT)])
def test_what_is_cut_arrives_late_and_whole(
    links: ProxyLinks, echo: str, way: tuple[str, str]
) -> None:
    with dial(links.front("broker-1", echo)) as end:
        end.sendall(b"before")
        assert receive(end, 6) == b"before"
        links.cut(*way)
        end.sendall(b"during")
        with pytest.raises(TimeoutError):
            end.recv(1)
        links.heal()
        assert receive(end, 6) == b"during"


def test_a_cut_between_others_is_not_felt(links: ProxyLinks, echo: str) -> None:
    links.cut("broker-2", "broker-1")
    with dial(links.front("broker-1", echo)) as end:
        end.sendall(b"still")
        assert receive(end, 5) == b"still"


def test_it_knows_who_dials(links: ProxyLinks, echo: str) -> None:
    front = links.front("broker-1", echo)
    links.cut("broker-2", "broker-1")
    with dial(front) as client, dial(front, links.address("broker-2")) as end:
        for dialer in (client, end):
            dialer.sendall(b"who")
        assert receive(client, 3) == b"who"
        with pytest.raises(TimeoutError):
            end.recv(1)


def test_a_delay_is_kept(links: ProxyLinks, echo: str) -> None:
    links.slow(CLIENT, "broker-1", 0.5)
    with dial(links.front("broker-1", echo)) as end:
        took: list[float] = []
        # Once per round trip, not twice; the quickest of many, for the machine may be busy.
        while len(took) < 50 and min(took, default=1.0) >= 0.95:
            began = time.monotonic()
            end.sendall(b"slow")
            assert receive(end, 4) == b"slow"
            took.append(time.monotonic() - began)
        assert 0.5 <= min(took) < 0.95


def test_a_half_open_link_swallows_and_ends_when_healed(links: ProxyLinks, echo: str) -> None:
    front = links.front("broker-1", echo)
    with dial(front) as end:
        end.sendall(b"whole")
        assert receive(end, 5) == b"whole"
        assert links.half_open(CLIENT, "broker-1") == 1
        end.sendall(b"into the void")
        with pytest.raises(TimeoutError):
            end.recv(1)
        with dial(front) as another:
            another.sendall(b"new")
            assert receive(another, 3) == b"new"
        links.heal()
        end.settimeout(200.0)
        with pytest.raises(ConnectionError):
            end.recv(1)


def test_who_refuses_is_refused(links: ProxyLinks) -> None:
    # It has the port, which nobody else gets, and does not listen.
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        front = links.front("broker-1", f"127.0.0.1:{deaf.getsockname()[1]}")
        # The reset may come while the dialler is still busy connecting, or after.
        with pytest.raises(ConnectionError), dial(front) as end:
            receive(end, 1)
