"""Bad input, each row of the promise: one line that says what and how to mend it, exit code not 0,
nothing lost, no traceback, and the node goes on."""

import random
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from logboom.client import Client, connect
from logboom.deploy.cluster import Cluster
from logboom.deploy.cluster_key import ensure_key
from logboom.deploy.layout import lay_out
from logboom.deploy.node_client import NodeClient
from logboom.deploy.ports import Ports
from logboom.wire.acceptor import Acceptor
from logboom.wire.actor import Effects, PeerAddress, Received
from logboom.wire.batch import encode_batch
from logboom.wire.errors import DamagedBatch, LogboomError, Refused
from logboom.wire.hello import Identity
from logboom.wire.messages import Produce
from logboom.wire.session import Session
from logboom.wire.sockets import Sockets
from tests.integration.cli.command import complaint, fail, logboom, succeed

TOPIC = "bad-input"


@pytest.fixture(scope="module")
def topic(servers: str) -> str:
    """A topic of one queue that holds three messages of at most 1 KiB."""
    succeed("topic", "create", TOPIC, "-q", 1, "--max-message", "1k", servers=servers)
    succeed("produce", TOPIC, "a", "b", "c", servers=servers)
    return TOPIC


@pytest.fixture(scope="module")
def boom(servers: str) -> Iterator[Client]:
    """A client beside the command."""
    with connect(servers) as client:
        yield client


@pytest.fixture(autouse=True)
def _nothing_is_lost(boom: Client, topic: str) -> Iterator[None]:
    """Whatever was refused, the three messages stay, alone, and the node serves."""
    yield
    result = boom.pull(topic, queue=0, offset=0)
    assert [message.value for message in result.messages] == [b"a", b"b", b"c"]
    assert result.max_offset == 3


def test_a_folder_that_is_no_brokers_is_named(tmp_path: Path, servers: str) -> None:
    for verb in ("inspect", "recover"):
        line = fail("store", verb, tmp_path / "nowhere", servers=servers)
        assert "no broker's data folder" in line
    found = {"format": 2, "node": "broker-9", "cluster": "another"}
    (tmp_path / "identity.json").write_bytes(msgspec.json.encode(found))
    (tmp_path / "db").mkdir()
    assert "belongs to cluster another" in fail("store", "recover", tmp_path, servers=servers)


# ── names and numbers of requests ───────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "command",
    ["consume none", "produce none hello", "topic describe none", "message get none 0 0"],
)
def test_an_unknown_topic(servers: str, command: str) -> None:
    line = fail(*command.split(), servers=servers)
    assert "none" in line
    assert "topic" in line


@pytest.mark.parametrize(
    "command",
    [f"consume {TOPIC} -q 7", f"produce {TOPIC} hello -q 7", f"message get {TOPIC} 7 0"],
)
def test_an_unknown_queue(servers: str, command: str) -> None:
    line = fail(*command.split(), servers=servers)
    assert "queue" in line
    assert "0" in line, "it names those that are"


@pytest.mark.parametrize("name", ["a b", "", ".", "..", "x" * 128, "ü", "%RETRY%billing"])
def test_a_bad_name_gets_the_rule(servers: str, name: str) -> None:
    line = fail("topic", "create", "--", name, servers=servers)
    assert "127" in line or "system's" in line


@pytest.mark.parametrize(
    "command", [("produce", "bad name", "x"), ("consume", "bad name"), ("topic", "describe", "a b")]
)
def test_a_name_that_no_topic_can_have_is_not_suggested(
    servers: str, command: tuple[str, ...]
) -> None:
    line = fail(*command, servers=servers)
    assert "1 to 127" in line
    assert "create" not in line


@pytest.mark.parametrize("queues", [0, 1025])
def test_a_bad_number_of_queues_gets_the_rule(servers: str, queues: int) -> None:
    line = fail("topic", "create", "queues", "-q", queues, servers=servers)
    assert "1 to 1024" in line


def test_a_topic_that_exists(servers: str) -> None:
    assert TOPIC in fail("topic", "create", TOPIC, servers=servers)


def test_too_large_a_message(servers: str) -> None:
    line = fail("produce", TOPIC, "x" * 2_000, servers=servers)
    assert "1024" in line


def test_too_few_brokers_for_the_replicas(servers: str) -> None:
    line = fail("topic", "create", "copies", "--replicas", 3, servers=servers)
    assert "3" in line
    assert "broker" in line


@pytest.mark.parametrize(
    "command", [f"message get {TOPIC} 0 3", f"consume {TOPIC} -o 99", f"message get {TOPIC} 0 -1"]
)
def test_an_offset_out_of_range(servers: str, command: str) -> None:
    assert "offset" in fail(*command.split(), servers=servers)


# ── what only another client could send ─────────────────────────────────────────────────────────


def ask(endpoint: str, message: Produce, batch: bytes, identity: Identity) -> LogboomError | None:
    """One request with a batch, from a client of our own; the error that it ends in."""
    sockets = Sockets()
    session = Session(endpoint, identity, random.Random(7), time.monotonic())
    out = Effects()
    end = time.monotonic() + 200.0
    session.request(message, [batch], None, end, out, time.monotonic())
    try:
        while True:
            sockets.send(out.sends)
            received = sockets.poll(0.1)
            out, now = Effects(), time.monotonic()
            replies = [
                r
                for each in received
                if isinstance(each, Received)
                for r in session.receive(each.frames, out, now)
            ]
            for reply in [*replies, *session.tick(out, now)]:
                return reply.error
    finally:
        sockets.close()


def test_a_wrong_checksum(servers: str) -> None:
    batch = bytearray(encode_batch([b"damaged"], now_ms=0))
    batch[-1] ^= 0x40
    request = Produce(0, 5_000, TOPIC, 0, "all")
    error = ask(servers, request, bytes(batch), Identity("damager"))
    assert isinstance(error, DamagedBatch)
    assert "\n" not in str(error)


def test_a_wrong_protocol_version_of_the_client(servers: str) -> None:
    newer = Identity("newer", version_min=98, version_max=99)
    error = ask(
        servers, Produce(0, 5_000, TOPIC, 0, "all"), encode_batch([b"new"], now_ms=0), newer
    )
    assert isinstance(error, Refused)
    assert error.code == "UNSUPPORTED_VERSION"
    assert "upgrade the older side" in str(error)


@contextmanager
def node_of_another_version() -> Iterator[str]:
    """A listener that speaks only protocol 99."""
    sockets = Sockets({"main": "127.0.0.1:0"})
    gate = Acceptor("broker-9", b"", random.Random(7))
    gate.version_max = 0
    done = threading.Event()

    def serve() -> None:
        while not done.is_set():
            out = Effects()
            for each in sockets.poll(0.05):
                assert isinstance(each, Received)
                assert isinstance(each.peer, PeerAddress)
                gate.admit(each.peer, each.frames, out, time.monotonic())
            sockets.send(out.sends)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield sockets.endpoints["main"]
    finally:
        done.set()
        thread.join()
        sockets.close(flush_ms=100)


def test_a_wrong_protocol_version_of_the_node() -> None:
    with node_of_another_version() as endpoint:
        assert "upgrade the older side" in fail("topic", "list", servers=endpoint)


def test_nobody_listens() -> None:
    line = fail("topic", "list", servers="127.0.0.1:9")
    assert "127.0.0.1:9" in line


def test_what_is_no_endpoint() -> None:
    assert "host:port" in fail("topic", "list", servers="somewhere")


# ── nodes that cannot start ─────────────────────────────────────────────────────────────────────


@pytest.fixture
def laid_out(tmp_path: Path) -> Iterator[Path]:
    """Config files of one name server and two brokers, on ports of their own."""
    ports = Ports("free")
    yield lay_out(tmp_path, 1, 2, ports).data
    ports.release()


def start_node(role: str, config: Path) -> str:
    """Start a node that must refuse to; its one line."""
    done = logboom("node", role, "--config", config)
    # A node logs on standard error as well; its last line is the reason.
    last = done.err.splitlines()[-1]
    return complaint(done._replace(err=last + "\n") if "Traceback" not in done.err else done)


@pytest.mark.parametrize(("role", "node"), [("broker", "broker-1"), ("name-server", "name-1")])
def test_a_port_in_use(laid_out: Path, role: str, node: str) -> None:
    config = laid_out / node / "node.toml"
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        lines = config.read_text().splitlines()
        lines = [f'listen = "127.0.0.1:{port}"' if x.startswith("listen") else x for x in lines]
        config.write_text("\n".join(lines))
        line = start_node(role, config)
    assert str(port) in line
    assert "in use" in line


@pytest.mark.thorough
def test_the_data_folder_of_another_node(tmp_path: Path) -> None:
    with Cluster(1, 1, tmp_path):
        pass
    for role, node in (("broker", "broker-1"), ("name-server", "name-1")):
        config = tmp_path / node / "node.toml"
        config.write_text(config.read_text().replace(f'id = "{node}"', 'id = "stranger"', 1))
        line = start_node(role, config)
        assert str(tmp_path / node / "data") in line
        assert node in line


def test_a_data_folder_of_a_newer_format(tmp_path: Path) -> None:
    with Cluster(1, 1, tmp_path):
        pass
    for role, node in (("broker", "broker-1"), ("name-server", "name-1")):
        path = tmp_path / node / "data" / "identity.json"
        newer = msgspec.json.decode(path.read_bytes()) | {"format": 99}
        path.write_bytes(msgspec.json.encode(newer))
        line = start_node(role, tmp_path / node / "node.toml")
        assert "newer" in line
        assert "99" in line


@pytest.mark.thorough
def test_a_wrong_cluster_key(tmp_path: Path) -> None:
    with Cluster(1, 1, tmp_path / "cluster") as cluster:
        ports = Ports("free")
        own = lay_out(tmp_path / "other", 1, 2, ports)
        config = own.brokers[1].config_path
        theirs = own.name_servers[0].endpoint
        assert theirs in config.read_text()
        text = config.read_text().replace(theirs, cluster.name_server_endpoints[0])
        config.write_text(text)
        line = start_node("broker", config)
        ports.release()
        assert "cluster key" in line
        assert cluster.running("name-1")


def test_a_cluster_key_that_others_may_read(laid_out: Path) -> None:
    ensure_key(laid_out / "cluster.key").chmod(0o644)
    line = start_node("broker", laid_out / "broker-1" / "node.toml")
    assert "chmod 600" in line


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("id = ", "not valid TOML"),
        ('id = "a"\nlistne = "127.0.0.1:1"', "did you mean 'listen'"),
        ('listen = "127.0.0.1:1"', "missing required field `id`"),
        ('id = "a"\nname_servers = 7', "`name_servers`"),
        ('id = "a"\nname_servers = ["x:1"]\nlisten = "nowhere"', "nowhere"),
        ('id = "A B"\nname_servers = ["x:1"]', "A B"),
    ],
)
def test_a_config_that_cannot_be_used(laid_out: Path, content: str, said: str) -> None:
    config = laid_out / "bad.toml"
    key = ensure_key(laid_out / "cluster.key")
    config.write_text(f'cluster_key_file = "{key}"\ndata = "bad"\n{content}')
    assert said in start_node("broker", config)


def test_a_config_that_is_not_there(tmp_path: Path) -> None:
    assert "No such file" in start_node("broker", tmp_path / "none.toml")
    assert "directory" in start_node("name-server", tmp_path)


# ── command lines ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("topic crate x", "create"),
        ("topic create x --queues many", "--queues"),
        ("topic create", "name"),
        ("consume x --nonsense", "--nonsense"),
        ("produce x a --acks some", "acks"),
    ],
)
def test_a_wrong_command_line_exits_with_2(command: str, said: str) -> None:
    done = logboom(*command.split())
    assert said in complaint(done).lower()
    assert done.code == 2


@pytest.mark.parametrize(
    "command",
    [
        f"consume {TOPIC} -o middle",
        f"consume {TOPIC} --since yesterday",
        f"consume {TOPIC} --since ever",
        f"consume {TOPIC} --count -1",
        f"consume {TOPIC} -q 0-99999999999",
        f"produce {TOPIC} a --count -1",
        "dev --port 99999",
        "cluster up -p 99999",
        f"consume {TOPIC} -q one",
        f"consume {TOPIC} -f %z",
        f"produce {TOPIC} a -H broken",
        f"topic create {TOPIC}2 --retention soon",
        f"topic create {TOPIC}2 --retention 99999999999999d",
        "cluster up -n 2",
    ],
)
def test_a_value_that_makes_no_sense(servers: str, command: str, tmp_path: Path) -> None:
    done = logboom(*command.split(), servers=servers, cwd=tmp_path)
    assert complaint(done)
    assert done.code == 1
    assert list(tmp_path.iterdir()) == []


def test_the_asker_tells_why_a_node_does_not_answer() -> None:
    with NodeClient() as asker:
        assert asker.views(["127.0.0.1:9"], 0.3) == {}
