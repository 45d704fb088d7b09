"""Ports: the customary ones in order, or free ones that nobody else is given meanwhile."""

import socket

import pytest

from logboom.deploy.ports import Ports
from logboom.wire.errors import InvalidRequest, StartError
from logboom.wire.listeners import metrics_address
from logboom.wire.sockets import Sockets


def test_customary_ports_keep_their_distance() -> None:
    ports = Ports()
    assert [ports.name_server(), ports.name_server()] == ["127.0.0.1:7701", "127.0.0.1:7702"]
    assert [ports.broker(), ports.broker()] == ["127.0.0.1:7711", "127.0.0.1:7712"]
    assert ports.raft() == "127.0.0.1:7721"


def test_any_number_of_brokers_leaves_the_raft_ports_alone() -> None:
    ports = Ports()
    brokers = [int(ports.broker().rpartition(":")[2]) for _ in range(25)]
    assert brokers == [*range(7711, 7721), *range(7731, 7746)]


@pytest.mark.parametrize("base", [-1, 0, 65_506, 99_999])
def test_ports_that_cannot_be(base: int) -> None:
    with pytest.raises(InvalidRequest, match="give 1 to 65505"):
        Ports(base)


def test_more_brokers_than_ports() -> None:
    ports = Ports(65_505)
    most = [ports.broker() for _ in range(11)]
    assert most[-1] == "127.0.0.1:65535"
    with pytest.raises(InvalidRequest, match="no port is left"):
        ports.broker()


def test_another_base_moves_all() -> None:
    ports = Ports(9000)
    assert (ports.name_server(), ports.broker(), ports.raft()) == (
        "127.0.0.1:9000",
        "127.0.0.1:9010",
        "127.0.0.1:9020",
    )


def test_a_node_listens_on_a_held_port_again_and_again() -> None:
    ports = Ports("free")
    endpoint = ports.broker()
    for _ in range(3):
        node = Sockets({"main": endpoint})
        with pytest.raises(StartError, match="in use"):
            Sockets({"main": endpoint})
        node.close()
    ports.release()


def test_a_held_port_is_given_to_nobody_else() -> None:
    ports = Ports("free")
    held = {int(ports.broker().rpartition(":")[2]) for _ in range(200)}
    assert len(held) == 200
    others = []
    for _ in range(200):
        other = socket.socket()
        other.bind(("127.0.0.1", 0))
        others.append(other)
    assert not held & {other.getsockname()[1] for other in others}
    for other in others:
        other.close()
    ports.release()


def test_the_metrics_of_a_node_take_no_port_that_somebody_else_reserved() -> None:
    ports, others = Ports("free"), Ports("free")
    reserved: set[int] = set()
    for _ in range(300):
        for each in (ports, others):
            port = int(each.broker().rpartition(":")[2])
            both = {port, int(metrics_address("auto", f"127.0.0.1:{port}").rpartition(":")[2])}
            assert not both & reserved
            reserved |= both
    ports.release()
    others.release()
