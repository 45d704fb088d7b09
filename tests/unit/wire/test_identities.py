"""Sessions and the users behind them: a routing id is no identity (S1, S2)."""

import itertools
import random

import pytest

from logboom.wire.acceptor import Acceptor, PeerSession
from logboom.wire.access.access_book import AccessBook
from logboom.wire.access.access_rules import (
    AccessRule,
    AccessView,
    UserKey,
    UserView,
    label_of,
    user_of,
)
from logboom.wire.actor import Effects, PeerAddress
from logboom.wire.authorizer import Authorizer
from logboom.wire.base import WireMessage
from logboom.wire.frames import decode, encode
from logboom.wire.hello import PeerKind, proof
from logboom.wire.messages import (
    Challenge,
    Failure,
    Heartbeat,
    Hello,
    NeedHello,
    Ping,
    Prove,
    Stats,
    Watch,
    Welcome,
)

KEY = b"k" * 32
HERE = PeerAddress("main", b"\x00one")
ALICE, MALLORY = "alice/laptop#1", "mallory/phone#2"
NODE = "node:broker-2/first#3"


class Gate:
    """A listener with keys; each message is said by somebody."""

    def __init__(self) -> None:
        self.acceptor = Acceptor("broker-1", KEY, random.Random(1))
        # Everybody may connect and do everything: who it is, is the question here.
        self.acceptor.authorizer = Authorizer(self._book, lambda _: True)
        self.served: list[tuple[PeerSession, WireMessage]] = []

    @staticmethod
    def _book() -> AccessBook:
        rule = AccessRule(True, "admin", "cluster", "cluster")
        users = [UserView(name, [], [], [rule]) for name in ("alice", "mallory", "")]
        book = AccessBook()
        book.update(AccessView(True, users), 1)
        return book

    def say(self, message: WireMessage, principal: str | None) -> WireMessage | None:
        """Return the answer of the gate itself, or None if the message is served."""
        out = Effects()
        admitted = self.acceptor.admit(HERE, encode(message), out, 0.0, principal)
        if admitted is not None:
            self.served.append(admitted[:2])
            return None
        (send,) = out.sends
        return decode(send.frames)

    def greet(
        self, principal: str | None, who: str = "me", kind: PeerKind = "client"
    ) -> WireMessage | None:
        return self.say(
            Hello(-1, 1, 1, who, kind, 0, b"", b"" if kind == "client" else b"n"), principal
        )


def test_a_session_has_its_user() -> None:
    gate = Gate()
    assert isinstance(gate.greet(ALICE), Welcome)
    assert gate.say(Stats(7, 1_000), ALICE) is None
    peer, _ = gate.served[0]
    assert (peer.principal, peer.user) == (ALICE, "alice")


def test_on_a_listener_without_keys_nobody_has_a_name() -> None:
    gate = Gate()
    gate.greet(None)
    assert gate.say(Stats(7, 1_000), None) is None
    peer, _ = gate.served[0]
    assert (peer.principal, peer.user) == (None, "")


@pytest.mark.parametrize(
    ("opened", "taken"),
    [
        (ALICE, MALLORY),
        (ALICE, "alice/laptop#9"),
        (ALICE, "alice/other#1"),
        (ALICE, None),
        (ALICE, ""),
        (None, MALLORY),
    ],
)
def test_s1_who_takes_over_a_routing_id_has_no_session(
    opened: str | None, taken: str | None
) -> None:
    gate = Gate()
    gate.greet(opened)
    for message in (Stats(7, 1_000), Watch(8, 1_000, -1, [], 0), Ping(-2)):
        assert isinstance(gate.say(message, taken), NeedHello)
    assert gate.served == []
    # The one whose it is, is served as before.
    assert gate.say(Stats(9, 1_000), opened) is None
    # Whoever greets gets a session of its own, and the former is gone.
    assert isinstance(gate.greet(taken), Welcome)
    assert isinstance(gate.say(Stats(10, 1_000), opened), NeedHello)


def test_s2_a_node_needs_the_key_of_that_node_and_the_cluster_key() -> None:
    gate = Gate()
    challenge = gate.greet(NODE, "broker-2", "broker")
    assert isinstance(challenge, Challenge)
    shown = proof(KEY, "dialer", b"n", challenge.nonce, "broker-2")
    assert isinstance(gate.say(Prove(-1, shown), NODE), Welcome)
    gate.say(Heartbeat(7, 1_000, "broker-2", 1), NODE)
    assert gate.served[0][0].user == "node:broker-2"


@pytest.mark.parametrize(
    ("principal", "who", "kind"),
    [
        (ALICE, "broker-2", "broker"),
        (ALICE, "name-1", "name-server"),
        (NODE, "broker-3", "broker"),
        (NODE, "name-1", "name-server"),
        ("", "broker-2", "broker"),
        (NODE, "broker-2", "client"),
        (NODE, "me", "client"),
    ],
)
def test_s2_nobody_greets_as_what_its_key_is_not(principal: str, who: str, kind: PeerKind) -> None:
    gate = Gate()
    refused = gate.greet(principal, who, kind)
    assert isinstance(refused, Failure)
    assert (refused.id, refused.code) == (-1, "UNAUTHENTICATED")
    assert "credentials file" in refused.text
    assert len(gate.acceptor) == gate.acceptor.greetings == 0


def test_s2_the_proof_comes_from_the_one_who_was_challenged() -> None:
    gate = Gate()
    challenge = gate.greet(NODE, "broker-2", "broker")
    assert isinstance(challenge, Challenge)
    shown = proof(KEY, "dialer", b"n", challenge.nonce, "broker-2")
    assert isinstance(gate.say(Prove(-1, shown), MALLORY), NeedHello)
    assert len(gate.acceptor) == 0


def keyed(*labels_and_keys: tuple[str, str], disabled: bool = False) -> AccessView:
    keys = [UserKey(label, public, 0) for label, public in labels_and_keys]
    return AccessView(True, [UserView("alice", keys, disabled=disabled)])


def test_a_label_that_goes_to_another_key_ends_the_principal_of_the_old_one() -> None:
    book = AccessBook()
    versions = itertools.count(1)
    book.update(keyed(("laptop", "A" * 40)), next(versions))
    old = book.principal_of("A" * 40)
    assert old is not None
    assert (user_of(old), label_of(old)) == ("alice", "laptop")
    assert book.is_current(old)
    book.update(keyed(("laptop", "B" * 40)), next(versions))
    assert not book.is_current(old)
    assert book.principal_of("A" * 40) is None
    new = book.principal_of("B" * 40)
    assert new is not None
    assert book.is_current(new)
    book.update(keyed(("laptop", "B" * 40), disabled=True), next(versions))
    assert not book.is_current(new)
    assert book.principal_of("B" * 40) is None
