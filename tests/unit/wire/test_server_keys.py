"""With which keys nodes are dialled: published ones, those of the file, and the next after a wrong one."""

from logboom.wire.credentials import Credentials, Server, known_keys
from logboom.wire.key_pair import KeyPair, Secret
from logboom.wire.listeners import ListenerView
from logboom.wire.server_keys import MAX_ENDPOINTS, KeyChoice
from logboom.wire.told_endpoints import published_keys
from logboom.wire.view import BrokerView, NameServerView

OPEN = ListenerView("open", "h:1", "none")
ENCRYPTED = ListenerView("main", "h:2", "curve")


def test_keys_count_at_listeners_that_encrypt() -> None:
    broker = BrokerView("b", "h:1", "", 1, True, 1, [OPEN, ENCRYPTED], ["k1", "k2"])
    server = NameServerView("n", "h:3", [], ["k3"])
    assert published_keys("h:2", [broker, server]) == ["k1", "k2"]
    assert published_keys("h:1", [broker, server]) == []
    # It has a key, and does not encrypt yet.
    assert published_keys("h:3", [broker, server]) == []
    assert published_keys("h:4", [broker, server]) == []


def test_a_node_takes_published_keys_and_those_of_its_file() -> None:
    servers = (Server("n", "h:2", "file"), Server("n", "h:3", "other"))
    credentials = Credentials("node:b", "", KeyPair("p", Secret("s")), servers)
    keys = known_keys(lambda endpoint: ["published"] if endpoint == "h:2" else [], credentials)
    assert keys("h:2") == ("published", "file")
    assert keys("h:3") == ("other",)
    assert keys("h:4") == ()
    assert known_keys(lambda _endpoint: (), None)("h:2") == ()


def test_the_next_key_is_chosen_after_a_wrong_one() -> None:
    choice = KeyChoice()
    assert choice.choose("h:1", ()) is None
    for expected in ("a", "b", "c", "a", "b"):
        key = choice.choose("h:1", ("a", "b", "c"))
        assert key == expected
        choice.failed("h:1", key)
    assert choice.choose("h:2", ("a", "b")) == "a", "another endpoint is another node"
    # A key that is new is tried next, and a wrong one that is gone is no matter.
    assert choice.choose("h:1", ("b", "d")) == "d"


def test_what_is_remembered_of_wrong_keys_is_bounded() -> None:
    choice = KeyChoice()
    for number in range(MAX_ENDPOINTS + 1):
        choice.failed(f"h:{number}", "a")
    assert choice.choose("h:0", ("a", "b")) == "a"
    assert choice.choose(f"h:{MAX_ENDPOINTS}", ("a", "b")) == "b"
