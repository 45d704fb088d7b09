"""Bytes that reach new code: atheris where it is installed, else a small feedback of our own.

What takes bytes from strangers is called in this process: the decoder, the gate, and the checks
and opening of batches. They may refuse with the errors they name, and with nothing else.
"""

from __future__ import annotations

import importlib
import importlib.util
import random
import sys
import time
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, Final

from logboom.wire.acceptor import Acceptor
from logboom.wire.actor import Effects, PeerAddress
from logboom.wire.batch import encode_batch, open_batch, validate_batch
from logboom.wire.errors import DamagedBatch, InvalidRequest
from logboom.wire.frames import decode, encode
from logboom.wire.messages import Hello, Pull, Watch

_PEER: Final = PeerAddress("main", b"fuzz")
INTERESTING: Final = (b"\xff", b"\x00", b"\x7f", b"\xdd\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff")
BATCHES: Final = (
    encode_batch([b"v"] * 5, now_ms=1),
    encode_batch([b"v" * 50] * 5, [b"k"] * 5, "tag", [{"h": b"x"}] * 5, [1] * 5, now_ms=1),
    encode_batch([b"v" * 500] * 5, now_ms=1, codec="lz4"),
    encode_batch([b"v" * 500] * 5, now_ms=1, codec="zstd"),
)
SEEDS: Final = (
    *(bytes(encode(m)[0]) for m in (Hello(-1, 1, 1, "c", "client", 0), Watch(1, 1, -1, ["t"], 1))),
    bytes(encode(Pull(1, 1, "t", 0, 0, 1, 1, 0, ["a"], 5))[0]),
    *BATCHES,
)


def one_input(data: bytes) -> None:
    """Show bytes to all that take some; an error that is none of theirs goes up."""
    for refusal, take in _TAKERS:
        try:
            take(data)
        except refusal:
            continue


def _gate(data: bytes) -> None:
    gate, out = Acceptor("node", b"key", random.Random(1)), Effects()
    gate.admit(_PEER, encode(Hello(-1, 1, 1, "c", "client", 0)), out, 0.0)
    gate.admit(_PEER, [data, data], out, 1.0)
    assert out.sends


def _batch(data: bytes) -> None:
    validate_batch(data, stamped=False)
    open_batch(data)


def _unchecked(data: bytes) -> None:
    # As if the checksum had been made to fit: what is behind it bears any bytes too.
    for start in (0, 96):
        open_batch((BATCHES[2][:start] + data)[: 1 << 20])


_TAKERS: Final[tuple[tuple[type[Exception], Callable[[bytes], Any]], ...]] = (
    (InvalidRequest, lambda data: decode([data])),
    (InvalidRequest, _gate),
    (DamagedBatch, _batch),
    (DamagedBatch, _unchecked),
)


def guided(seconds: float, seed: int, say: Callable[[str], None]) -> int:
    """Feed bytes for some seconds; how many inputs.

    With atheris this ends the process: it is called last, in a process of its own.
    """
    if importlib.util.find_spec("atheris") is None:
        say(
            "atheris is not installed: pip install atheris (Linux only); our own feedback stands in"
        )
        return _own(seconds, seed)
    atheris: Any = importlib.import_module("atheris")
    atheris.instrument_all()
    words = [sys.argv[0], f"-max_total_time={max(1, int(seconds))}", f"-seed={seed + 1}"]
    atheris.Setup(words, one_input)
    atheris.Fuzz()
    raise AssertionError("atheris ends the process")


def _own(seconds: float, seed: int) -> int:
    """Change what once reached a line that nothing before it had reached."""
    rng = random.Random(seed)
    corpus, seen = list(SEEDS), set[tuple[CodeType, int]]()
    until, inputs = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        data = corpus[inputs] if inputs < len(SEEDS) else _changed(rng, corpus)
        inputs += 1
        reached = _lines(data)
        if not reached <= seen:
            seen |= reached
            corpus.append(data)
    return inputs


def _changed(rng: random.Random, corpus: list[bytes]) -> bytes:
    data = bytearray(rng.choice(corpus))
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(5):
            case 0 if at < len(data):
                data[at] ^= 1 << rng.randrange(8)
            case 1:
                del data[at : at + rng.randint(1, 8)]
            case 2:
                data[at:at] = rng.choice(INTERESTING)
            case 3:
                data[at : at + 4] = rng.randbytes(4)
            case _:
                other = rng.choice(corpus)
                data[at:] = other[rng.randrange(len(other) + 1) :]
    return bytes(data)


def _lines(data: bytes) -> set[tuple[CodeType, int]]:
    """The lines of our wire that these bytes reach."""
    reached: set[tuple[CodeType, int]] = set()

    def local(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            reached.add((frame.f_code, frame.f_lineno))
        return local

    def called(frame: FrameType, _event: str, _: Any) -> Any:
        return local if "/logboom/wire/" in frame.f_code.co_filename else None

    before = sys.gettrace()
    sys.settrace(called)
    try:
        one_input(data)
    finally:
        sys.settrace(before)
    return reached
