"""Session and gate together: greeting, proof, NEED_HELLO, deadlines, liveness. No socket."""

import itertools
import random

import pytest

from logboom.wire.acceptor import (
    IDLE,
    MAX_BEYOND_QUOTA,
    MAX_CLIENT_ID,
    MAX_CREDENTIALS,
    MAX_FRAMES,
    MAX_GREETINGS,
    MAX_STRANGERS_FRAME,
    PROVE_S,
    Acceptor,
)
from logboom.wire.access.access_book import AccessBook
from logboom.wire.access.access_rules import AccessView, Quota, UserKey, UserView, principal_of
from logboom.wire.actor import Effects, HandshakeFault, PeerAddress, Send
from logboom.wire.authorizer import Authorizer
from logboom.wire.base import SMALL_FRAME, WireMessage
from logboom.wire.commands import CreateTopic, FenceBroker
from logboom.wire.errors import InvalidRequest, Unauthenticated
from logboom.wire.frames import Frame, decode, encode
from logboom.wire.hello import Identity, proof
from logboom.wire.messages import (
    FRAME_ROOM_BYTES,
    AnyMessage,
    Challenge,
    Failure,
    Heartbeat,
    Hello,
    NeedHello,
    Ok,
    Ping,
    Pong,
    Propose,
    Prove,
    RaftFrame,
    Stats,
    Throttled,
    Welcome,
)
from logboom.wire.session import DEAD_AFTER, PING_AFTER, PING_IDLE, REDIAL_LAST_S, Reply, Session
from logboom.wire.view import TopicConfig

ENDPOINT = "127.0.0.1:7711"
KEY = b"k" * 32
ANNS_KEY = UserKey("laptop", "a" * 40, 0)
ANN = principal_of("ann", ANNS_KEY)


class Line:
    """One connection: a session on one end, a gate on the other, delivery by hand."""

    def __init__(self, identity: Identity, key: bytes = KEY) -> None:
        self.now = 100.0
        self.session = Session(ENDPOINT, identity, random.Random(1), self.now)
        self.gate = Acceptor("broker-1", key, random.Random(2), "cluster")
        self.address = PeerAddress("main", b"\x01")
        self.out = Effects()
        self.replies: list[Reply] = []
        self.served: list[WireMessage] = []
        self.reachable = True

    def ask(self, timeout: float = 5.0, context: str = "mine") -> int:
        return self.session.request(
            Stats(0, 5000), (), context, self.now + timeout, self.out, self.now
        )

    def run(self) -> None:
        """Deliver until both ends are quiet; the node answers Stats with Done."""
        while self.out.sends:
            sends, self.out.sends = self.out.sends, []
            for send in sends:
                if self.reachable:
                    self.deliver(send)

    def deliver(self, send: Send) -> None:
        if isinstance(send.peer, PeerAddress):
            self.replies += self.session.receive(send.frames, self.out, self.now)
            return
        answers = Effects()
        admitted = self.gate.admit(self.address, send.frames, answers, self.now)
        self.out.sends += answers.sends
        if admitted is not None:
            _, message, _ = admitted
            self.served.append(message)
            self.out.sends.append(Send(self.address, encode(Ok(message.id))))

    def tick(self, seconds: float) -> None:
        self.now += seconds
        self.replies += self.session.tick(self.out, self.now)
        self.run()

    def reconnect(self) -> None:
        """The transport came back by itself under a new routing id."""
        self.address = PeerAddress("main", self.address.routing_id + b"\x01")


def client() -> Identity:
    return Identity("me")


def node(key: bytes = KEY) -> Identity:
    return Identity("broker-2", "broker", 3, key)


def first(frames: list[Frame]) -> WireMessage:
    return decode(frames)


def test_a_request_waits_for_the_greeting_and_is_answered() -> None:
    line = Line(client())
    line.ask()
    line.run()
    assert line.session.state == "open"
    assert line.session.peer_id == "broker-1"
    assert [(r.context, type(r.message)) for r in line.replies] == [("mine", Ok)]


def test_w1_a_new_routing_id_is_asked_for_hello_and_requests_are_sent_again() -> None:
    line = Line(client())
    line.ask(context="first")
    line.run()
    line.reconnect()
    line.ask(context="second")
    line.run()
    assert [r.context for r in line.replies] == ["first", "second"]
    assert line.session.generation == 2
    assert len(line.gate) == 2


@pytest.mark.parametrize("opened", [False, True])
def test_a_number_that_does_not_fit_ends_one_request_alone(opened: bool) -> None:
    line = Line(client())
    if opened:
        line.session.open(line.out, line.now)
        line.run()
    for timeout_ms, context in ((1 << 70, "not"), (5_000, "fits")):
        line.session.request(Stats(0, timeout_ms), (), context, 200.0, line.out, line.now)
    line.tick(0.0)
    line.tick(0.0)
    ended = {reply.context: reply for reply in line.replies}
    assert isinstance(ended["not"].error, InvalidRequest)
    assert isinstance(ended["fits"].message, Ok)
    assert line.session.pending() == 0


@pytest.mark.parametrize("opened", [False, True])
def test_what_the_peer_would_not_accept_ends_in_words(opened: bool) -> None:
    line = Line(client())
    line.gate.max_request_bytes = 1_000
    if opened:
        line.session.open(line.out, line.now)
        line.run()
    for size, context in ((1_000 + FRAME_ROOM_BYTES, "fits"), (1_001 + FRAME_ROOM_BYTES, "not")):
        message = Stats(0, 5_000)
        line.session.request(message, [bytes(size)], context, 200.0, line.out, line.now)
    assert line.session.deadline() is not None
    line.tick(0.0)
    line.tick(0.0)
    ended = {reply.context: reply for reply in line.replies}
    assert isinstance(ended["fits"].message, Ok)
    error = ended["not"].error
    assert isinstance(error, InvalidRequest)
    assert (error.code, error.fields["limit"]) == ("TOO_LARGE", 1_000)
    assert "max_request_bytes" in error.text
    assert line.session.pending() == 0
    assert len(line.served) == 1


def test_w1_many_queued_requests_greet_once() -> None:
    line = Line(client())
    line.ask()
    line.run()
    line.reconnect()
    for number in range(5):
        line.ask(context=str(number))
    hellos = 0
    while line.out.sends:
        sends, line.out.sends = line.out.sends, []
        hellos += sum(isinstance(decode(send.frames), Hello) for send in sends)
        for send in sends:
            line.deliver(send)
    assert hellos == 1
    assert [r.context for r in line.replies[1:]] == ["0", "1", "2", "3", "4"]


def test_an_answer_that_comes_twice_counts_once() -> None:
    line = Line(client())
    number = line.ask()
    line.run()
    late = line.session.receive(encode(Ok(number)), line.out, line.now)
    assert late == []
    assert len(line.replies) == 1


def test_a_request_without_answer_ends_at_its_deadline() -> None:
    line = Line(client())
    line.reachable = False
    line.ask(timeout=0.5)
    line.run()
    line.tick(0.49)
    assert line.replies == []
    line.tick(0.01)
    (reply,) = line.replies
    assert reply.error is not None
    assert reply.error.code == "TIMED_OUT"
    assert ENDPOINT in reply.error.text


def test_a_request_that_the_peer_delays_is_waited_for_up_to_its_latest_time() -> None:
    line = Line(Identity("c1"))
    line.session.open(line.out, line.now)
    line.run()
    begin = line.now
    numbers = [
        line.session.request(
            Stats(0, 5000), (), latest, begin + 5.0, line.out, begin, begin + latest
        )
        for latest in (5, 12, 60)
    ]
    line.out.sends.clear()
    notice = Throttled(0, 4_000, [*numbers, 99])
    ended: dict[int, float] = {}
    for _ in range(30):
        if line.now < begin + 20:
            line.session.receive(encode(notice), line.out, line.now)
            assert line.session.throttled_until == line.now + 4.0
        line.tick(1.0)
        for reply in line.replies:
            ended.setdefault(reply.context, line.now - begin)
            assert reply.error is not None
            assert reply.error.code == "TIMED_OUT"
    # The last notice is of second 19; a deadline begins anew with its 5 s.
    assert ended == {5: 5.0, 12: 12.0, 60: 24.0}


def test_deadline_is_never_later_than_the_first_request() -> None:
    line = Line(client())
    line.ask(timeout=0.7)
    line.run()
    line.reachable = False
    line.ask(timeout=0.2)
    wanted = line.session.deadline()
    assert wanted is not None
    assert wanted <= line.now + 0.2


def test_a_silent_peer_is_pinged_then_dialled_anew() -> None:
    line = Line(client())
    line.ask()
    line.run()
    line.reachable = False
    line.ask(timeout=60.0)
    line.run()
    line.now += PING_AFTER
    line.session.tick(line.out, line.now)
    assert isinstance(decode(line.out.sends[-1].frames), Ping)
    line.out.sends.clear()
    for _ in range(100):
        line.tick(0.1)
    assert line.out.redials.count(ENDPOINT) >= 2
    line.reachable = True
    line.reconnect()
    for _ in range(40):
        line.tick(0.1)
    assert [r.error for r in line.replies] == [None, None]


def test_redials_are_further_apart_each_time_until_a_connection_opens() -> None:
    line = Line(client())
    line.ask()

    def redials(seconds: float) -> list[float]:
        """When the connection is dialled again, while nobody answers."""
        line.reachable = False
        line.ask(timeout=600.0)
        began, times = line.now, list[float]()
        while line.now - began < seconds:
            line.tick(0.05)
            times += [line.now] * len(line.out.redials)
            line.out.redials.clear()
        return times

    for _ in range(2):
        line.reachable = True
        line.reconnect()
        for _ in range(100):
            line.tick(0.1)
        assert line.session.state == "open"
        line.out.redials.clear()
        times = redials(60.0)
        pauses = [later - earlier - PING_AFTER for earlier, later in itertools.pairwise(times)]
        assert pauses[0] < 0.5
        assert REDIAL_LAST_S * 0.5 < max(pauses) <= REDIAL_LAST_S * 1.5 + 0.2


def test_who_waits_for_nothing_pings_seldom_and_still_finds_out() -> None:
    line = Line(client())
    line.ask()
    line.run()
    pings = 0
    for _ in range(round(6 * PING_IDLE / 0.1)):
        line.now += 0.1
        line.session.tick(line.out, line.now)
        pings += len(line.out.sends)
        line.run()
    assert 4 <= pings <= 6
    assert line.session.state == "open"
    line.reachable = False
    for _ in range(round((PING_IDLE + DEAD_AFTER) / 0.1)):
        line.tick(0.1)
    assert ENDPOINT in line.out.redials


def test_a_request_on_an_idle_connection_finds_out_at_once_that_it_is_dead() -> None:
    line = Line(client())
    line.ask()
    line.run()
    line.tick(PING_IDLE - 0.5)
    line.reachable = False
    line.ask(timeout=60.0)
    for _ in range(round(DEAD_AFTER / 0.1)):
        line.tick(0.1)
    assert line.out.redials == [ENDPOINT]


@pytest.mark.parametrize("ends", ["deadline", "cancel"])
def test_short_requests_one_after_the_other_find_out_that_a_connection_is_dead(ends: str) -> None:
    """Each began a silence of its own: a follower whose connection was half open asked for as long as
    it took ZeroMQ's heartbeats (`make chaos` 7001)."""
    line = Line(client())
    line.ask()
    line.run()
    line.reachable = False
    number = 0
    # Silent for so long since it was first asked, and the pause before it is dialled anew.
    for tenth in range(round((DEAD_AFTER + 0.3) / 0.1)):
        if tenth % 15 == 0:
            line.session.cancel(number)
            number = line.ask(timeout=1.5 if ends == "deadline" else 60.0)
            line.run()
        line.tick(0.1)
    assert line.out.redials == [ENDPOINT]


def test_a_live_but_slow_peer_is_not_dialled_anew() -> None:
    line = Line(client())
    line.ask()
    line.run()
    line.served.clear()
    for _ in range(int(3 * DEAD_AFTER / 0.5)):
        line.tick(0.5)
    assert line.out.redials == []


def test_a_session_that_only_tells_still_pings_a_silent_peer() -> None:
    line = Line(node())
    line.session.open(line.out, line.now)
    line.run()
    generation = line.session.generation
    for _ in range(100):
        line.tick(0.1)
        line.session.tell(RaftFrame(0, "broker-2", 1, 0), (), line.out, line.now)
        line.out.sends.pop()
    assert line.session.generation == generation, "the answered pings keep it"


def test_what_is_told_on_an_idle_connection_does_not_end_it() -> None:
    line = Line(node())
    line.session.open(line.out, line.now)
    line.run()
    line.tick(PING_IDLE - 0.5)
    line.session.tell(RaftFrame(0, "broker-2", 1, 0), (), line.out, line.now)
    line.out.sends.pop()
    for _ in range(20):
        line.tick(0.1)
    assert line.out.redials == []
    line.reachable = False
    line.session.tell(RaftFrame(0, "broker-2", 1, 0), (), line.out, line.now)
    for _ in range(round(DEAD_AFTER / 0.1) + 3):
        line.tick(0.1)
    assert line.out.redials == [ENDPOINT]


def test_nodes_prove_the_cluster_key_to_each_other() -> None:
    line = Line(node())
    line.ask()
    line.run()
    assert line.session.state == "open"
    peer = line.gate.peer(line.address)
    assert peer is not None
    assert (peer.client_id, peer.kind, peer.instance_epoch) == ("broker-2", "broker", 3)


def test_a_listener_with_another_key_is_refused_by_the_dialler() -> None:
    line = Line(node(), key=b"other")
    line.ask()
    line.run()
    (reply,) = line.replies
    assert reply.error is not None
    assert reply.error.code == "UNAUTHENTICATED"
    assert len(line.gate) == 0


def test_a_dialler_with_another_key_gets_no_session() -> None:
    line = Line(node(key=b"other"))
    line.session.identity = node(key=KEY)  # believes the listener, then proves with a wrong key
    line.ask()
    sends, line.out.sends = line.out.sends, []
    line.deliver(sends[0])
    challenge = line.out.sends.pop()
    line.session.receive(challenge.frames, line.out, line.now)
    assert isinstance(decode(line.out.sends[0].frames), Prove)
    forged = encode(Prove(-1, b"\0" * 32))
    answers = Effects()
    assert line.gate.admit(line.address, forged, answers, line.now) is None
    failure = decode(answers.sends[0].frames)
    assert isinstance(failure, Failure)
    assert failure.code == "UNAUTHENTICATED"
    assert len(line.gate) == 0


def test_a_client_may_not_ask_what_only_nodes_may() -> None:
    line = Line(client())
    line.ask()
    line.run()
    for message in (
        Heartbeat(0, 500, "broker-1", 1),
        Propose(0, 500, "me", 1, FenceBroker("broker-1", 1, 1, 0)),
    ):
        line.session.request(message, (), "bad", line.now + 1, line.out, line.now)
        line.run()
        error = line.replies[-1].error
        assert error is not None
        assert error.code == "UNAUTHENTICATED"
    create = CreateTopic("flights", 1, 1, TopicConfig(), 0)
    line.session.request(
        Propose(0, 500, "me", 2, create), (), "good", line.now + 1, line.out, line.now
    )
    line.run()
    assert line.replies[-1].error is None


def test_a_version_out_of_range_is_refused_with_both_ranges() -> None:
    line = Line(Identity("me", version_min=2, version_max=3))
    line.ask()
    line.run()
    (reply,) = line.replies
    assert reply.error is not None
    assert reply.error.code == "UNSUPPORTED_VERSION"
    assert "2 to 3" in reply.error.text


def test_the_greater_common_version_is_taken() -> None:
    line = Line(Identity("me", version_min=1, version_max=9))
    line.gate.version_max = 4
    line.ask()
    line.run()
    peer = line.gate.peer(line.address)
    assert peer is not None
    assert peer.version == 4


def test_malformed_frames_are_answered_and_end_nothing() -> None:
    line = Line(client())
    line.ask()
    line.run()
    answers = Effects()
    assert line.gate.admit(line.address, [b"\xc1junk"], answers, line.now) is None
    failure = decode(answers.sends[0].frames)
    assert isinstance(failure, Failure)
    assert failure.code == "MALFORMED"
    line.ask()
    line.run()
    assert line.replies[-1].error is None


def test_a_silent_session_is_forgotten() -> None:
    line = Line(client())
    line.ask()
    line.run()
    assert line.gate.sweep(line.now + IDLE - 1) == []
    assert line.gate.sweep(line.now + IDLE + 1) == [line.address]
    answers = Effects()
    line.gate.admit(line.address, encode(Ping(-2)), answers, line.now)
    assert isinstance(decode(answers.sends[0].frames), NeedHello)


def test_a_ping_is_answered_at_once() -> None:
    line = Line(client())
    line.ask()
    line.run()
    answers = Effects()
    assert line.gate.admit(line.address, encode(Ping(-2)), answers, line.now) is None
    assert decode(answers.sends[0].frames) == Pong(-2)


def test_a_cancelled_request_has_no_reply() -> None:
    line = Line(client())
    number = line.ask()
    line.session.cancel(number)
    line.run()
    line.tick(10.0)
    assert line.replies == []


@pytest.mark.parametrize("frames", [[b""], [b"\x00"], [b"\x92\xa4pull\x07"]])
def test_a_session_survives_nonsense(frames: list[Frame]) -> None:
    line = Line(client())
    line.ask()
    assert line.session.receive(frames, line.out, line.now) == []
    line.run()
    assert line.replies[-1].error is None


def test_welcome_names_the_cluster() -> None:
    line = Line(client())
    answers = Effects()
    line.gate.admit(line.address, encode(Hello(-1, 1, 1, "me", "client", 0)), answers, line.now)
    assert decode(answers.sends[0].frames) == Welcome(0, 1, "broker-1", "cluster")


def said(gate: Acceptor, frames: list[Frame], *, at: float = 0.0, who: bytes = b"x") -> WireMessage:
    """The gate's answer to frames."""
    answers = Effects()
    assert gate.admit(PeerAddress("main", who), frames, answers, at) is None
    (send,) = answers.sends
    return decode(send.frames)


@pytest.mark.parametrize(
    ("hello", "field"),
    [
        (Hello(-1, 1, 1, "x" * (MAX_CLIENT_ID + 1), "client", 0), "client_id"),
        (Hello(-1, 1, 1, "me", "client", 0, bytes(MAX_CREDENTIALS + 1)), "credentials"),
        (Hello(-1, 1, 1, "me", "broker", 0, b"", bytes(65)), "nonce"),
        (Hello(-1, 1, 1, "x" * (MAX_CLIENT_ID + 1), "broker", 0, b"", bytes(16)), "client_id"),
    ],
)
def test_fields_of_a_greeting_are_bounded(hello: Hello, field: str) -> None:
    gate = Acceptor("broker-1", KEY, random.Random(2))
    answer = said(gate, encode(hello))
    assert isinstance(answer, Failure)
    assert (answer.code, answer.id) == ("TOO_LARGE", -1)
    assert field in answer.text
    assert len(gate) == 0


def test_a_large_frame_without_a_session_is_not_even_decoded() -> None:
    gate = Acceptor("broker-1", KEY, random.Random(2))
    assert said(gate, [bytes(MAX_STRANGERS_FRAME + 1)]) == NeedHello(0)
    answer = said(gate, [bytes(MAX_STRANGERS_FRAME)])
    assert isinstance(answer, Failure)


def test_a_clients_message_is_bounded_in_bytes_and_frames() -> None:
    gate = Acceptor("broker-1", KEY, random.Random(2))
    assert isinstance(said(gate, encode(Hello(-1, 1, 1, "me", "client", 0))), Welcome)
    answer = said(gate, [bytes(encode(Stats(7, 1))[0]) + bytes(SMALL_FRAME)])
    assert isinstance(answer, Failure)
    assert answer.code == "TOO_LARGE"
    answer = said(gate, [*encode(Stats(7, 1)), *[b""] * MAX_FRAMES])
    assert isinstance(answer, Failure)
    assert answer.code == "MALFORMED"


def test_greetings_of_nodes_that_never_prove_are_bounded_and_expire() -> None:
    gate = Acceptor("broker-1", KEY, random.Random(2))
    hello = Hello(-1, 1, 1, "broker-2", "broker", 0, b"", bytes(16))
    for number in range(3 * MAX_GREETINGS):
        said(gate, encode(hello), who=b"%d" % number)
    assert gate.greetings == MAX_GREETINGS
    gate.sweep(PROVE_S)
    assert gate.greetings == MAX_GREETINGS
    gate.sweep(PROVE_S + 1.1)
    assert gate.greetings == 0


def test_a_node_that_proves_late_greets_again() -> None:
    gate = Acceptor("broker-1", KEY, random.Random(2))
    hello = Hello(-1, 1, 1, "broker-2", "broker", 0, b"", bytes(16))
    challenge = said(gate, encode(hello))
    assert isinstance(challenge, Challenge)
    gate.sweep(PROVE_S + 1)
    shown = proof(KEY, "dialer", bytes(16), challenge.nonce, "broker-2")
    assert said(gate, encode(Prove(-1, shown)), at=PROVE_S + 1) == NeedHello(0)


@pytest.mark.parametrize("fault", ["key", "server", "unknown-server", "no-key"])
def test_a_handshake_that_keeps_failing_ends_the_requests_with_its_reason(
    fault: HandshakeFault,
) -> None:
    line = Line(Identity("me", user="ann"))
    line.ask(timeout=60.0)
    line.out.sends.clear()
    began = line.now
    dials = 0
    while not (ended := line.session.handshake_failed(fault, line.now)):
        due = line.session.deadline()
        assert due is not None
        assert due <= line.now + REDIAL_LAST_S
        line.now = due
        line.session.tick(line.out, line.now)
        assert line.out.redials == [ENDPOINT]
        line.out.redials.clear()
        dials += 1
    line.out.sends.clear()
    (reply,) = ended
    assert isinstance(reply.error, Unauthenticated)
    assert ENDPOINT in reply.error.text
    assert "\n" not in reply.error.text
    assert ("the key of ann" in reply.error.text) == (fault == "key")
    assert line.now - began <= 3.0
    assert dials >= 3, "a node's other keys are tried, too"
    assert line.session.refusal is reply.error
    # A later request dials again, and may be lucky.
    line.ask(context="second")
    line.run()
    assert [(r.context, r.error) for r in line.replies] == [("second", None)]


def test_a_handshake_that_fails_once_is_repeated() -> None:
    line = Line(client())
    line.ask()
    line.out.sends.clear()
    assert line.session.handshake_failed("key", line.now) == []
    line.tick(REDIAL_LAST_S)
    assert line.out.redials == [ENDPOINT]
    assert [r.error for r in line.replies] == [None]
    # What failed before it was open is forgotten.
    line.now += 5.0
    line.ask()
    assert line.session.handshake_failed("key", line.now) == []


def quota_gate(connections: int) -> Acceptor:
    """A gate whose user ann may have some connections."""
    gate = Acceptor("broker-1", KEY, random.Random(2))
    book = AccessBook()
    user = UserView("ann", [ANNS_KEY], quota=Quota(connections=connections))
    book.update(AccessView(True, [user]), 1)
    gate.authorizer = Authorizer(lambda: book)
    return gate


def greets(gate: Acceptor, name: str, out: Effects, nonce: bytes = b"") -> AnyMessage:
    """Greet as ann over a connection; the answer."""
    hello = Hello(-1, 1, 1, name, "client", 0, b"", nonce)
    before = len(out.sends)
    gate.admit(PeerAddress("main", name.encode()), encode(hello), out, 1.0, ANN)
    (send,) = out.sends[before:]
    return decode(send.frames)


def test_a_connection_beyond_the_quota_is_not_even_challenged() -> None:
    gate, out = quota_gate(1), Effects()
    assert isinstance(greets(gate, "first", out), Welcome)
    refused = greets(gate, "second", out, bytes(16))
    assert isinstance(refused, Failure)
    assert (refused.code, gate.greetings) == ("BUSY", 0)
    assert isinstance(greets(gate, "first", out), Welcome), "who has a session may greet again"


def test_of_many_connections_beyond_the_quota_the_oldest_are_reset() -> None:
    gate, out = quota_gate(1), Effects()
    greets(gate, "first", out)
    for number in range(MAX_BEYOND_QUOTA):
        assert isinstance(greets(gate, f"c{number}", out), Failure)
    greets(gate, "c0", out)
    assert not out.kicks, "some may wait for their turn"
    for number in range(100, 110):
        greets(gate, f"c{number}", out)
    kicked = [each.routing_id.decode() for each in out.kicks]
    assert kicked == [f"c{number}" for number in range(1, 11)]
    gate.end(PeerAddress("main", b"first"))
    assert isinstance(greets(gate, "c0", out), Welcome)
    greets(gate, "c200", out)
    assert len(out.kicks) == 10, "who has got in does not wait any more"
