"""What any request costs before its user's rights are known: every type, every field, at its largest.

Nothing here names a message type: one that is added is tried, too, and fails if a list of it has no limit.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, get_args

import msgspec
import msgspec.inspect as kinds
import pytest

from logboom.wire.acceptor import Acceptor
from logboom.wire.access.access_book import AccessBook
from logboom.wire.access.access_rules import (
    VERBS_OF,
    AccessRule,
    AccessView,
    UserKey,
    UserView,
    principal_of,
)
from logboom.wire.actor import Effects, PeerAddress
from logboom.wire.authorizer import Authorizer
from logboom.wire.base import SMALL_FRAME, WireMessage
from logboom.wire.errors import InvalidRequest
from logboom.wire.frames import REQUESTS, decode, decode_request, encode, id_of
from logboom.wire.messages import MAX_MESSAGE_FRAME, AnyMessage, Failure, Hello, Propose, Welcome
from tests.unit.wire.largest_requests import (
    Field,
    array,
    fields,
    fullest,
    shortest,
    tag_of,
)
from tests.unit.wire.work import cost_ms, peak_bytes, without_garbage_of_others

MOST_MS: Final = 10.0
"""Before rights and quotas are known."""
MOST_MEMORY: Final = 48
"""Bytes for each byte of a request: an empty list within a pair of bytes takes as much."""
BASE_MEMORY: Final = 64 * 1024
"""Bytes that any request may take besides."""
WORTH_A_LOOK: Final = 8 * 1024
"""Bytes of a request below which only its limits are looked at."""
FIELDS: Final = list(fields())
LISTS: Final = [each for each in FIELDS if isinstance(each.kind, kinds.ListType | kinds.DictType)]
LIMITED: Final = [
    each
    for each in LISTS
    if isinstance(each.kind, kinds.ListType | kinds.DictType) and each.kind.max_length is not None
]
ADDRESS: Final = PeerAddress("main", b"somebody")
KEY: Final = UserKey("laptop", "k" * 40, 0)
EVERYTHING: Final = [
    AccessRule(True, verb, kind, "*")
    for kind, verbs in VERBS_OF.items()
    for verb in verbs
    if kind != "cluster"
]


@pytest.fixture(autouse=True, scope="module")
def _quiet() -> Iterator[None]:
    with without_garbage_of_others():
        yield


def is_cheap(call: Callable[[], object], size: int) -> None:
    """Fail if a call costs more than a request of so many bytes may."""
    spent = cost_ms(call, MOST_MS)
    assert spent <= MOST_MS, f"{spent:.1f} ms"
    taken = peak_bytes(call)
    assert taken <= MOST_MEMORY * size + BASE_MEMORY, f"{taken / size:.1f} times its bytes"


def refusal(raw: bytes, *, of_client: bool = True) -> InvalidRequest | None:
    """Why a request is refused, or None."""
    try:
        decode_request([raw], of_client=of_client)
    except InvalidRequest as error:
        return error
    return None


def listener(*rules: AccessRule) -> Callable[[bytes], WireMessage | None]:
    """A listener that a user with these rules has greeted: takes a frame, returns the answer to it."""
    book = AccessBook()
    book.update(AccessView(True, [UserView("ann", [KEY], rules=list(rules), version=1)]), 1)
    gate = Acceptor("broker-1", b"key", random.Random(1))
    gate.authorizer = Authorizer(lambda: book)

    def say(raw: bytes) -> WireMessage | None:
        out = Effects()
        admitted = gate.admit(ADDRESS, [raw], out, 1.0, principal_of("ann", KEY))
        if admitted is not None:
            peer, message, _ = admitted
            if isinstance(message, Propose):
                # A name server decides on the command, by the same rules.
                gate.authorizer.refusal_of_command(peer, message.command, str)
        return decode(out.sends[0].frames) if out.sends else None

    assert isinstance(say(bytes(encode(Hello(-1, 1, 1, "me", "client", 0))[0])), Welcome)
    return say


# ── the table ───────────────────────────────────────────────────────────────────────────────────


def test_all_requests_and_fields_are_tried() -> None:
    assert {each.request for each in FIELDS} == {*REQUESTS}
    assert {str(each) for each in LISTS} >= {
        "offsets.queues",
        "settlemessages.acked",
        "propose.command(decide).parked",
        "groupjoin.config.options.config",
    }


@pytest.mark.parametrize("field", LISTS, ids=str)
def test_a_list_has_a_limit(field: Field) -> None:
    assert isinstance(field.kind, kinds.ListType | kinds.DictType)
    if field.kind.max_length is None:
        # Commands and configurations are stored, too, and what is stored has to be read for ever: the
        # length of the frame bounds them.
        assert "." in field.name, (
            "say how many elements it may have: Annotated[…, Meta(max_length=…)]"
        )
        assert field.request.FRAME_BYTES == SMALL_FRAME
    if field.request.FRAME_BYTES > SMALL_FRAME:
        assert not (isinstance(field.kind, kinds.ListType) and holds_lists(field.kind.item_type))


def holds_lists(kind: kinds.Type) -> bool:
    """True if elements of this kind are, or hold, lists."""
    if isinstance(kind, kinds.StructType):
        return any(holds_lists(each.type) for each in kind.fields)
    if isinstance(kind, kinds.UnionType):
        return any(map(holds_lists, kind.types))
    return isinstance(kind, kinds.ListType | kinds.DictType | kinds.AnyType)


@pytest.mark.parametrize("field", FIELDS, ids=str)
def test_the_most_in_a_field_is_cheap(field: Field) -> None:
    says = [listener(), listener(*EVERYTHING)]
    for value in fullest(field, field.request.FRAME_BYTES):
        raw = field.whole(value)
        assert len(raw) <= field.request.FRAME_BYTES
        if isinstance(field.kind, kinds.ListType | kinds.DictType):
            assert refusal(raw) is None
        if len(raw) > WORTH_A_LOOK:
            for say in says:
                is_cheap(partial(say, raw), len(raw))


@pytest.mark.parametrize("field", LIMITED, ids=str)
def test_one_element_too_many_is_answered_before_any_is_built(field: Field) -> None:
    assert isinstance(field.kind, kinds.ListType | kinds.DictType)
    limit = field.kind.max_length
    assert limit is not None
    for count in (limit + 1, (1 << 32) - 1):
        head = b"\xdd" if isinstance(field.kind, kinds.ListType) else b"\xdf"
        raw = field.whole(head + count.to_bytes(4, "big") + b"\x90" * 60_000)[:SMALL_FRAME]
        error = refusal(raw)
        assert error is not None
        assert (error.code, error.fields["id"]) == ("TOO_LARGE", 7)
        assert f"<= {limit}" in error.text
        assert "several requests" in error.text
        is_cheap(partial(refusal, raw), 1)


@pytest.mark.parametrize("request_type", REQUESTS, ids=tag_of)
def test_a_frame_is_bounded_by_its_type(request_type: type[WireMessage]) -> None:
    limit = request_type.FRAME_BYTES
    raw = shortest(kinds.type_info(request_type))
    if limit > SMALL_FRAME:
        error = refusal(raw + bytes(limit - len(raw)))
        assert error is not None
        assert error.code == "MALFORMED"
    say = listener(*EVERYTHING)
    answer = say(raw + bytes(limit + 1 - len(raw)))
    assert isinstance(answer, Failure)
    assert (answer.id, answer.code) == (7, "TOO_LARGE")
    assert f"at most {limit}" in answer.text
    longer = refusal(raw + bytes(limit + 1 - len(raw)), of_client=False)
    assert longer is not None
    assert longer.code == "MALFORMED", "nodes have longer frames"


# ── what is malformed ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("filler", [b"\x80", b"\x90", b"\x91", b"\x81\xa0", b"\xc0", b"\xa0"])
@pytest.mark.parametrize("limit", sorted({each.FRAME_BYTES for each in REQUESTS}))
def test_a_frame_of_empty_objects_is_cheap(limit: int, filler: bytes) -> None:
    """Objects behind the last field are skipped; in place of a field they are refused."""
    request = next(each for each in REQUESTS if limit == each.FRAME_BYTES)
    tag = msgspec.msgpack.encode(tag_of(request))
    known = kinds.type_info(request)
    assert isinstance(known, kinds.StructType)
    all_fields = [tag, *(shortest(each.type) for each in known.fields)]
    for begin in (all_fields, all_fields[:3], [tag, b"\x07"], [tag], []):
        count = (limit - sum(map(len, begin)) - 5) // len(filler)
        raw = b"\xdd%c%c%c%c" % tuple((len(begin) + count).to_bytes(4, "big"))
        raw += b"".join(begin) + filler * count
        is_cheap(partial(refusal, raw), len(raw))
        error = refusal(raw)
        assert error is None or len(error.text) < 400


@pytest.mark.parametrize("of_client", [True, False])
@pytest.mark.parametrize(
    "begin",
    [
        b"",
        b"\xdd\x7f\xff\xff\xff",
        b"\xa7offsets",
        b"\x95\xa7offsets\x07\x00\xa1t\xdd\x00\x00\x04\x00",
    ],
)
@pytest.mark.parametrize("filler", [b"\x80", b"\x90", b"\x91", b"\x81", b"\xff", b"\xdd\0\0\0\1"])
def test_garbage_costs_as_little_as_its_length(
    begin: bytes, filler: bytes, of_client: bool
) -> None:
    size = SMALL_FRAME if of_client else 2 * 1024 * 1024
    raw = (begin + filler * size)[:size]
    is_cheap(lambda: refusal(raw, of_client=of_client), len(raw))
    assert refusal(raw, of_client=of_client) is not None


@pytest.mark.parametrize("answer", [each for each in get_args(AnyMessage) if each not in REQUESTS])
def test_an_answer_is_no_request(answer: type[WireMessage]) -> None:
    raw = shortest(kinds.type_info(answer))
    decode([raw])
    error = refusal(raw)
    assert error is not None
    assert (error.code, error.fields["id"]) == ("UNKNOWN_TYPE", 7)


def test_a_long_type_is_not_quoted() -> None:
    error = refusal(array([msgspec.msgpack.encode("x" * 60_000), b"\x07"]))
    assert error is not None
    assert error.code == "UNKNOWN_TYPE"
    assert len(error.text) < 400


@pytest.mark.parametrize(
    "number", [0, 1, 127, 128, 255, 1 << 16, 1 << 33, (1 << 64) - 1, -1, -33, -(1 << 40)]
)
@pytest.mark.parametrize("length", [2, 15, 16, 70_000])
def test_the_id_of_a_malformed_frame_is_found(number: int, length: int) -> None:
    for tag in ("ping", "x" * 40):
        raw = msgspec.msgpack.encode([tag, number, *([None] * (length - 2))])
        assert id_of(raw) == number
        assert id_of(raw[:-1] if length > 2 else raw + b"\x00") == number
        assert id_of(memoryview(raw)) == number


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\x92",
        b"\x92\xa4ping",
        b"\x92\xa9ping",
        b"\x92\x01\x07",
        b"\x92\xa1\xff\x07",
        b"\x92\xa4ping\xc0",
    ],
)
def test_a_frame_without_an_id_has_none(raw: bytes) -> None:
    assert id_of(raw) == 0


def test_nodes_have_a_limit_too() -> None:
    error = refusal(bytes(MAX_MESSAGE_FRAME + 1), of_client=False)
    assert error is not None
    assert error.code == "TOO_LARGE"
