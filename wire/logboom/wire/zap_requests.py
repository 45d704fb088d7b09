"""ZAP (ZeroMQ RFC 27), pure: what ZeroMQ asks about each key in a handshake, and the answers.

A handshake whose verdict is not known yet waits, for as long as ZeroMQ lets it. (The status 300,
"try later", would end it without a word, and in libzmq 4.3.5 some of these connections hang.)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from logboom.wire.authenticator import REFUSED, Authenticate, Verdict
from logboom.wire.frames import Frame
from logboom.wire.key_pair import z85

VERSION: Final = b"1.0"
DOMAIN: Final = "logboom"
MECHANISM: Final = b"CURVE"
KEY_BYTES: Final = 32
MAX_WAITING: Final = 1_000
"""Maximum number of handshakes that wait for a verdict; beyond it the oldest are refused."""
RETRY_S: Final = 0.05
"""Seconds between two verdicts about one handshake that waits."""
_STATUS: Final = {"accepted": b"200", "later": b"300", "refused": b"400"}


def domain_of(listener: str) -> str:
    """Return the ZAP domain of a listener, by which a request tells where the peer dialled."""
    return f"{DOMAIN}/{listener}"


class _Handshake(NamedTuple):
    route: Sequence[Frame]
    """The frames that lead the answer to it."""
    number: bytes
    public_key: str
    address: str
    listener: str
    until: float


class ZapRequests:
    """The requests of one process; the answers go back to where each request came from."""

    def __init__(self, patience_s: float) -> None:
        """Create it; a handshake waits for at most `patience_s`."""
        self.authenticate: Authenticate = refuse_all
        self._patience_s = patience_s
        self._waiting: deque[_Handshake] = deque()
        self._retry_at = 0.0

    def __len__(self) -> int:
        return len(self._waiting)

    def take(self, frames: Sequence[Frame], now: float) -> list[list[Frame]]:
        """Take one request, as a ROUTER receives it; return the answers to send."""
        handshake = _parse(frames, now + self._patience_s)
        if handshake is None:
            return []
        if isinstance(handshake, list):
            return [handshake]
        verdict = self._verdict(handshake)
        if verdict.status != "later":
            return [_answer(handshake, verdict)]
        self._waiting.append(handshake)
        if len(self._waiting) > MAX_WAITING:
            return [_answer(self._waiting.popleft(), verdict)]
        return []

    def retry(self, now: float) -> list[list[Frame]]:
        """Return the answers to those that waited, at most every `RETRY_S` seconds."""
        if not self._waiting or now < self._retry_at:
            return []
        self._retry_at = now + RETRY_S
        waiting, self._waiting = self._waiting, deque()
        answers: list[list[Frame]] = []
        for handshake in waiting:
            verdict = self._verdict(handshake)
            if verdict.status == "later" and now < handshake.until:
                self._waiting.append(handshake)
            else:
                answers.append(_answer(handshake, verdict))
        return answers

    def _verdict(self, handshake: _Handshake) -> Verdict:
        return self.authenticate(handshake.public_key, handshake.address, handshake.listener)


def refuse_all(_public_key: str, _address: str, _listener: str) -> Verdict:
    """Let nobody in: the verdict until the owner has set another."""
    return REFUSED


def _parse(frames: Sequence[Frame], until: float) -> _Handshake | list[Frame] | None:
    """Return the request, or the answer to one that is not acceptable."""
    parts = [bytes(frame) for frame in frames]
    if len(parts) < 9 or parts[1] != b"":
        return None
    route, (version, number, domain, address, _, mechanism, *credentials) = parts[:2], parts[2:]
    listener = domain.decode("utf-8", "replace").removeprefix(f"{DOMAIN}/")
    if (
        version != VERSION
        or mechanism != MECHANISM
        or domain_of(listener).encode() != domain
        or [len(each) for each in credentials] != [KEY_BYTES]
    ):
        return [*route, VERSION, number, b"400", b"refused", b"", b""]
    host = address.decode("utf-8", "replace")
    return _Handshake(route, number, z85(credentials[0]), host, listener, until)


def _answer(handshake: _Handshake, verdict: Verdict) -> list[Frame]:
    status, text = _STATUS[verdict.status], verdict.status.encode()
    who = verdict.principal.encode() if verdict.status == "accepted" else b""
    return [*handshake.route, VERSION, handshake.number, status, text, who, b""]
