"""A secret is shown to nobody who does not ask for it by name."""

import copy
import logging
import pickle
import traceback

import msgspec
import pytest

from logboom.wire.hello import Identity
from logboom.wire.key_pair import KeyPair, Secret, SecretBytes

TEXT = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7"
BYTES = SecretBytes(TEXT.encode())


@pytest.mark.parametrize(
    "shown",
    [
        str(Secret(TEXT)),
        repr(Secret(TEXT)),
        f"{Secret(TEXT)!s:>50}",
        f"{Secret(TEXT):>50}",
        "%s %r" % (Secret(TEXT), Secret(TEXT)),  # noqa: UP031 - logging formats like this
        repr(KeyPair("public", Secret(TEXT))),
        repr(vars(type("Holder", (), {"secret": Secret(TEXT)}))),
        str(BYTES),
        f"{BYTES!r}{BYTES:>50}",
        "%r %r" % (BYTES, [BYTES]),  # noqa: UP031 - logging formats like this
    ],
)
def test_it_is_never_printed(shown: str) -> None:
    assert TEXT not in shown
    assert "***" in shown


def test_it_is_not_in_a_log_or_a_traceback(caplog: pytest.LogCaptureFixture) -> None:
    try:
        raise ValueError(KeyPair("public", Secret(TEXT)))
    except ValueError as error:
        logging.getLogger("test").exception("failed with %s", error.args)
        lines = traceback.TracebackException.from_exception(error, capture_locals=True).format()
        assert TEXT not in "".join(lines)
    assert TEXT not in caplog.text


def test_it_does_not_leave_the_process_by_a_codec() -> None:
    with pytest.raises(TypeError, match="read it from its file"):
        pickle.dumps(KeyPair("public", Secret(TEXT)))
    with pytest.raises(TypeError, match="read it from its file"):
        copy.deepcopy(Secret(TEXT))
    for encode in (msgspec.json.encode, msgspec.msgpack.encode):
        with pytest.raises(TypeError):
            encode(Secret(TEXT))
    with pytest.raises(TypeError):
        hash(Secret(TEXT))


def test_a_secret_of_bytes_is_used_as_bytes_and_leaves_by_no_codec() -> None:
    assert TEXT.encode() == BYTES
    for pack in (pickle.dumps, copy.deepcopy):
        with pytest.raises(TypeError, match="read it from its file"):
            pack(BYTES)
    for encode in (msgspec.json.encode, msgspec.msgpack.encode):
        with pytest.raises(TypeError):
            encode(BYTES)
    assert TEXT not in repr(Identity("me", cluster_key=TEXT.encode()))


def test_it_is_revealed_and_compared() -> None:
    assert Secret(TEXT).reveal() == TEXT
    assert Secret(TEXT) == Secret(TEXT)
    assert Secret(TEXT) != Secret(TEXT.upper())
    assert Secret(TEXT) != TEXT
