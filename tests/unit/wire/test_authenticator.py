"""Verdicts on keys, and the answers of ZAP (S4)."""

import zmq.utils.z85

from logboom.wire.access.access_book import AccessBook
from logboom.wire.access.access_rules import AccessView, UserKey, UserView
from logboom.wire.authenticator import LATER, REFUSED, Verdict, verdict_on
from logboom.wire.key_pair import z85
from logboom.wire.zap_requests import MAX_WAITING, RETRY_S, ZapRequests, domain_of, refuse_all

RAW = {name: bytes([number]) * 32 for number, name in enumerate(("alice", "name-2", "other"))}
KEYS = {name: z85(raw) for name, raw in RAW.items()}


def book(*users: UserView) -> AccessBook:
    found = AccessBook()
    found.update(AccessView(True, list(users)), 1)
    return found


def test_z85_is_that_of_zeromq() -> None:
    for raw in (*RAW.values(), bytes(range(32)), b"\xff" * 32):
        assert z85(raw) == zmq.utils.z85.encode(raw).decode()


def test_a_key_is_accepted_as_its_principal() -> None:
    known = book(UserView("alice", [UserKey("k", KEYS["alice"], 0)]))
    principal = known.principal_of(KEYS["alice"])
    assert principal is not None
    assert verdict_on(principal, known) == Verdict("accepted", principal)
    assert verdict_on(known.principal_of(KEYS["other"]), known) == REFUSED


def test_s4_while_no_user_is_known_everybody_waits() -> None:
    assert verdict_on(None, AccessBook()) == LATER
    assert verdict_on(None, book()) == LATER
    # The first nodes of a cluster are known without it.
    assert verdict_on("node:name-2/initial#1", AccessBook()).status == "accepted"


def asked(number: int = 1, key: bytes = RAW["alice"], **other: bytes) -> list[bytes]:
    """A request as ZeroMQ sends it."""
    parts = {
        "version": b"1.0",
        "number": b"%d" % number,
        "domain": domain_of("main").encode(),
        "address": b"10.0.0.7",
        "routing": b"",
        "mechanism": b"CURVE",
        "key": key,
    }
    return [b"route", b"", *(parts | other).values()]


def test_zap_answers_go_back_with_status_and_principal() -> None:
    requests = ZapRequests(5.0)
    requests.authenticate = lambda key, address, listener: Verdict(
        "accepted", f"{key}/{address}/{listener}"
    )
    (answer,) = requests.take(asked(9), 0.0)
    who = f"{KEYS['alice']}/10.0.0.7/main".encode()
    assert answer == [b"route", b"", b"1.0", b"9", b"200", b"accepted", who, b""]
    requests.authenticate = refuse_all
    (answer,) = requests.take(asked(9), 0.0)
    assert answer == [b"route", b"", b"1.0", b"9", b"400", b"refused", b"", b""]


def test_s4_what_is_no_request_of_ours_is_refused() -> None:
    requests = ZapRequests(5.0)
    requests.authenticate = lambda _key, _address, _listener: Verdict("accepted", "alice/a")
    wrong = {
        "version": b"2.0",
        "domain": b"main",
        "mechanism": b"PLAIN",
        "key": b"short",
    }
    for name, value in wrong.items():
        (answer,) = requests.take(asked(3, **{name: value}), 0.0)
        assert answer == [b"route", b"", b"1.0", b"3", b"400", b"refused", b"", b""], name
    assert requests.take([b"route", b"", b"1.0"], 0.0) == []
    (answer,) = requests.take([*asked(), b"more"], 0.0)
    assert answer[4] == b"400"


def test_names_that_are_no_text_are_no_error() -> None:
    requests = ZapRequests(5.0)
    requests.authenticate = lambda _key, address, _listener: Verdict("accepted", address)
    (answer,) = requests.take(asked(3, domain=domain_of("main").encode() + b"\xff"), 0.0)
    assert answer[4] == b"400"
    (answer,) = requests.take(asked(3, address=b"10.\xff"), 0.0)
    assert answer[4:7] == [b"200", b"accepted", "10.\ufffd".encode()]


def test_s4_only_who_is_accepted_has_a_name() -> None:
    requests = ZapRequests(5.0)
    requests.authenticate = lambda _key, _address, _listener: Verdict("refused", "alice/a")
    (answer,) = requests.take(asked(), 0.0)
    assert answer[4:] == [b"400", b"refused", b"", b""]


def test_who_waits_is_answered_soon_after_the_start_of_the_clock() -> None:
    requests = ZapRequests(5.0)
    requests.authenticate = lambda _key, _address, _listener: LATER
    assert requests.take(asked(1), 0.0) == []
    requests.authenticate = refuse_all
    assert [answer[3:5] for answer in requests.retry(0.0)] == [[b"1", b"400"]]


def test_who_cannot_be_judged_waits_and_is_answered_once() -> None:
    requests = ZapRequests(5.0)
    requests.authenticate = lambda _key, _address, _listener: LATER
    assert requests.take(asked(1), 0.0) == []
    assert requests.take(asked(2), 1.0) == []
    assert requests.retry(1.0) == []
    requests.authenticate = lambda _key, _address, _listener: Verdict("accepted", "alice/a")
    assert requests.retry(1.0 + RETRY_S / 2) == [], "not at every turn"
    assert [answer[3:5] for answer in requests.retry(1.0 + RETRY_S)] == [
        [b"1", b"200"],
        [b"2", b"200"],
    ]
    assert requests.retry(2.0) == []
    assert len(requests) == 0


def test_waiting_has_its_bounds() -> None:
    requests = ZapRequests(5.0)
    requests.authenticate = lambda _key, _address, _listener: LATER
    for number in range(MAX_WAITING):
        assert requests.take(asked(number), 0.0) == []
    (answer,) = requests.take(asked(MAX_WAITING), 1.0)
    assert answer[3:5] == [b"0", b"300"]
    assert len(requests) == MAX_WAITING
    answers = requests.retry(5.0)
    assert {answer[4] for answer in answers} == {b"300"}
    assert len(requests) == 1, "who came later has its time still"
