"""The dialling side of one connection, pure: HELLO, ids, deadlines, liveness, re-sending.

A session never loses a request silently. Each request ends in exactly one Reply, with the answer or
with an error (TIMED_OUT after its deadline). After a reconnect or NEED_HELLO, the session sends
HELLO and then every outstanding request again, under its own id (see docs/SAFETY.md, W1). It drops
the answer to a request that is no longer outstanding (Q5). Any message from the peer is proof of
life. Silence leads to a ping, and then to a redial with back-off (1 s, 3 s: the "paranoid pirate"
of the ZeroMQ guide).
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from logboom.wire.actor import Effects, HandshakeFault, Send
from logboom.wire.backoff import backoff
from logboom.wire.base import WireMessage
from logboom.wire.errors import (
    InvalidRequest,
    LogboomError,
    Refused,
    TimedOut,
    Unauthenticated,
    error_for,
)
from logboom.wire.frames import Frame, decode, encode
from logboom.wire.hello import Identity, proof, verify_proof
from logboom.wire.messages import (
    FRAME_ROOM_BYTES,
    AnyMessage,
    Challenge,
    Failure,
    Hello,
    NeedHello,
    Ping,
    Pong,
    Prove,
    Throttled,
    Welcome,
)

PING_AFTER: Final = 1.0
"""Seconds of silence before a ping, while the peer owes something."""
DEAD_AFTER: Final = 3.0
"""Seconds of silence before the connection is dialled again, while the peer owes something."""
PING_IDLE: Final = 5.0
"""Seconds of silence before a ping on an idle connection. It is less than the 30 s after which the
listener forgets a silent peer."""
HANDSHAKES_S: Final = 1.0
"""Seconds for which failed handshakes are repeated before the requests end: a key that was created a
moment ago may be on its way to the node, and a node may have several."""
REDIAL_FIRST_S: Final = 0.1
REDIAL_LAST_S: Final = 2.0
HELLO_ID: Final = -1
"""Correlation id of HELLO and PROVE."""
PING_ID: Final = -2


class Reply(NamedTuple):
    """The end of a request: `message` with `batches`, or `error`."""

    context: Any
    """The value given to `request`, to identify the caller."""
    message: AnyMessage | None
    batches: Sequence[Frame]
    error: LogboomError | None


@dataclass(slots=True)
class _InFlightRequest:
    frames: list[Frame]
    context: Any
    deadline: float
    timeout_s: float
    latest: float
    """Time up to which the peer may put off the deadline."""


class Session:
    """The connection to one endpoint."""

    def __init__(self, endpoint: str, identity: Identity, rng: random.Random, now: float) -> None:
        self.endpoint = endpoint
        self.identity = identity
        self.state: Literal["idle", "greeting", "open", "refused"] = "idle"
        self.peer_id = ""
        """Id of the node behind the endpoint, once open."""
        self.generation = 0
        """Grows each time the session opens."""
        self.refusal: LogboomError | None = None
        self.hindrance: LogboomError | None = None
        """Why the peer does not open the session now, though it may later."""
        self.throttled_until = float("-inf")
        """Time up to which further requests would wait for the user's quota, as last heard."""
        self._rng = rng
        self._nonce = b""
        self._next_id = 1
        self._outstanding: dict[int, _InFlightRequest] = {}
        self._deadlines: list[tuple[float, int]] = []
        self._unsent: list[int] = []
        self._heard = now
        self._said = now
        self._owing = False
        """True if a message was sent without an answer, or a request given up, since the peer was
        last heard."""
        self._greeted = now
        self._max_request_bytes = 0
        """Largest frame that the peer accepts; 0 if it is not known."""
        self._ended: dict[int, Reply] = {}
        """Requests that ended while they were sent; `tick` returns them."""
        self._losses = 0
        """Connections lost since the session was last open."""
        self._failing_since: float | None = None
        """Time of the first failed handshake since the session was last open or refused."""
        self._redial_at: float | None = None
        self._due: float | None = None
        self._due_known = False

    def request(
        self,
        message: WireMessage,
        batches: Sequence[Frame],
        context: Any,
        deadline: float,
        out: Effects,
        now: float,
        latest: float | None = None,
    ) -> int:
        """Send a request and set its id; it ends in one Reply, at `deadline` at the latest.

        While the peer says that it delays the request because of a quota, the deadline begins anew,
        up to `latest`. None: it is never put off.
        """
        self._due_known = False
        number = self._next_id
        self._next_id += 1
        message.id = number
        try:
            frames = encode(message, batches)
        except (OverflowError, TypeError, UnicodeEncodeError) as fault:
            text = "a number is greater than 64 bits hold"
            if not isinstance(fault, OverflowError):
                text = f"a value has the wrong type, or is no text: {fault}"
            error = InvalidRequest(text)
            self._ended[number] = Reply(context, None, (), error)
            return number
        self._expect(now)
        latest = deadline if latest is None else latest
        self._outstanding[number] = _InFlightRequest(
            frames, context, deadline, deadline - now, latest
        )
        heapq.heappush(self._deadlines, (deadline, number))
        if self.state == "open" and self._too_large(frames):
            self._ended[number] = self._end_too_large(number)
        elif self.state == "open":
            out.sends.append(Send(self.endpoint, frames))
            self._said = now
        else:
            self._unsent.append(number)
            if self.state in ("idle", "refused") and self._redial_at is None:
                self._greet(out, now)
        return number

    def tell(
        self, message: WireMessage, batches: Sequence[Frame], out: Effects, now: float
    ) -> bool:
        """Send a message that has no answer; return False if the session is not open."""
        self._due_known = False
        if self.state != "open":
            if self.state == "idle" and self._redial_at is None:
                self._greet(out, now)
            return False
        message.id = 0
        self._expect(now)
        self._owing = True
        # This does not update `_said`: nothing answers it, so the peer's silence must still lead to
        # a ping.
        out.sends.append(Send(self.endpoint, encode(message, batches)))
        return True

    def open(self, out: Effects, now: float) -> None:
        """Dial and greet without a request."""
        self._due_known = False
        if self.state in ("idle", "refused") and self._redial_at is None:
            self._greet(out, now)

    def cancel(self, number: int) -> None:
        """Forget a request: there will be no Reply."""
        self._due_known = False
        self._ended.pop(number, None)
        self._give_up(number)

    def pending(self) -> int:
        """Return the number of requests that wait for an answer."""
        return len(self._outstanding)

    def receive(self, frames: Sequence[Frame], out: Effects, now: float) -> list[Reply]:
        """Handle frames from the peer, and return the requests that ended."""
        self._due_known = False
        self._heard = now
        self._owing = False
        try:
            message = decode(frames)
        except InvalidRequest:
            return []
        if message.id > 0:
            return self._answer(message, frames[1:])
        match message:
            case NeedHello():
                # Several may arrive at once, one per queued request: greet only once. Two HELLOs on
                # one connection would mix up each other's nonces.
                if self.state == "open":
                    self._greet(out, now)
            case Challenge():
                return self._prove(message, out, now)
            case Welcome():
                return self._welcomed(message, out, now)
            case Throttled():
                self._put_off(message, now)
            case Failure(id=number) if number == HELLO_ID:
                return self._refused(error_for(message.code, message.text, message.fields), now)
            case _:
                pass
        return []

    def handshake_failed(
        self, fault: HandshakeFault, now: float, since: float | None = None
    ) -> list[Reply]:
        """Dial again soon, or end all waiting requests if that has failed for `HANDSHAKES_S`.

        Later requests dial again. `since` is the time from which on other nodes have failed in the
        same way, if they have.
        """
        self._due_known = False
        if self._failing_since is None:
            self._failing_since = now
        if now - min(self._failing_since, now if since is None else since) < HANDSHAKES_S:
            self._lose(now)
            return []
        self._failing_since = None
        self._redial_at = None
        self._losses = 0
        return self._refused(Unauthenticated(_fault_text(fault, self.endpoint, self.identity)), now)

    def tick(self, out: Effects, now: float) -> list[Reply]:
        """Expire requests, ping a silent peer, redial a dead one; return the ended requests."""
        # This is called in every turn of a node for every session, and nearly always nothing is
        # due.
        if self._due_known and (self._due is None or now < self._due):
            return []
        self._due_known = False
        replies = [*self._ended.values(), *self._expire(now)]
        self._ended.clear()
        if self._redial_at is not None:
            if now >= self._redial_at:
                self._redial_at = None
                out.redials.append(self.endpoint)
                self._greet(out, now)
            return replies
        if self.state not in ("open", "greeting"):
            return replies
        silent = now - max(self._heard, self._greeted)
        if self.state == "greeting":
            if now - self._greeted >= PING_AFTER:
                self._lose(now)
        elif silent >= self._ping_after() + DEAD_AFTER - PING_AFTER:
            self._lose(now)
        elif silent >= self._ping_after() and now - self._said >= PING_AFTER:
            out.sends.append(Send(self.endpoint, encode(Ping(PING_ID))))
            self._said = now
        return replies

    def deadline(self) -> float | None:
        """Return when `tick` is due next."""
        # This is called in every turn of a node for every session, so it is computed only after a
        # change.
        if not self._due_known:
            self._due = self._next_due()
            self._due_known = True
        return self._due

    def _expect(self, now: float) -> None:
        """Restart the measurement of silence, if the peer owed nothing until now."""
        if not (self._outstanding or self._owing):
            self._heard = max(self._heard, now - PING_AFTER)

    def _ping_after(self) -> float:
        return PING_AFTER if self._outstanding or self._owing else PING_IDLE

    def _next_due(self) -> float | None:
        if self._ended:
            return float("-inf")
        wanted = self._redial_at
        if wanted is None and self.state == "greeting":
            wanted = self._greeted + PING_AFTER
        elif wanted is None and self.state == "open":
            heard = max(self._heard, self._greeted)
            after = self._ping_after()
            dead_at = heard + after + DEAD_AFTER - PING_AFTER
            wanted = min(max(heard + after, self._said + PING_AFTER), dead_at)
        while self._deadlines and self._deadlines[0][1] not in self._outstanding:
            heapq.heappop(self._deadlines)
        if self._deadlines:
            first = self._deadlines[0][0]
            wanted = first if wanted is None else min(wanted, first)
        return wanted

    def _greet(self, out: Effects, now: float) -> None:
        me = self.identity
        self.state = "greeting"
        self._greeted = self._said = now
        self._nonce = self._rng.randbytes(16) if me.kind != "client" or me.cluster_key else b""
        hello = Hello(
            HELLO_ID,
            me.version_min,
            me.version_max,
            me.client_id,
            me.kind,
            me.instance_epoch,
            b"",
            self._nonce,
        )
        out.sends.append(Send(self.endpoint, encode(hello)))

    def _prove(self, message: Challenge, out: Effects, now: float) -> list[Reply]:
        me = self.identity
        if self.state != "greeting":
            return []
        found: bytes | None = None
        for key in (me.cluster_key, *me.other_keys):
            expected = proof(key, "listener", self._nonce, message.nonce, me.client_id)
            if verify_proof(expected, message.proof):
                found = key
        if found is None:
            mend = "give all nodes the same cluster key file"
            if me.kind == "client":
                mend = "use the key file of the cluster that you mean"
            text = f"the node at {self.endpoint} does not hold this cluster's key: {mend}"
            return self._refused(Refused(text, "UNAUTHENTICATED"), now)
        # With the key that the listener uses, which may know no other.
        shown = proof(found, "dialer", self._nonce, message.nonce, me.client_id)
        out.sends.append(Send(self.endpoint, encode(Prove(HELLO_ID, shown))))
        self._said = now
        return []

    def _welcomed(self, message: Welcome, out: Effects, now: float) -> list[Reply]:
        if self.state == "open":
            return []
        self.state = "open"
        self.refusal = self.hindrance = None
        self._failing_since = None
        self.peer_id = message.node
        self.generation += 1
        self._losses = 0
        self._unsent.clear()
        self._max_request_bytes = message.max_request_bytes
        large = [n for n, each in self._outstanding.items() if self._too_large(each.frames)]
        ended = [self._end_too_large(number) for number in large]
        for waiting in self._outstanding.values():
            out.sends.append(Send(self.endpoint, waiting.frames))
        self._said = now
        return ended

    def _too_large(self, frames: Sequence[Frame]) -> bool:
        """Return True if the peer would end the connection over a request, without a word."""
        limit = self._max_request_bytes
        return limit > 0 and max(map(len, frames)) > limit + FRAME_ROOM_BYTES

    def _end_too_large(self, number: int) -> Reply:
        waiting = self._outstanding.pop(number)
        size, limit = max(map(len, waiting.frames)), self._max_request_bytes
        text = (
            f"a request of {size} bytes; {self.peer_id} accepts {limit}: send smaller batches "
            "(max_batch_bytes), or raise max_request_bytes of the brokers"
        )
        return Reply(waiting.context, None, (), InvalidRequest(text, "TOO_LARGE", limit=limit))

    def _refused(self, error: LogboomError, now: float) -> list[Reply]:
        """End all waiting requests with the reason of a refusal by the peer."""
        if error.retryable:
            self.hindrance = error
            self._lose(now)
            return []
        self.state = "refused"
        self.refusal = error
        ended = [Reply(o.context, None, (), error) for o in self._outstanding.values()]
        self._outstanding.clear()
        self._unsent.clear()
        return ended

    def _put_off(self, message: Throttled, now: float) -> None:
        """Let the deadlines of delayed requests begin anew."""
        self.throttled_until = now + message.wait_ms / 1000
        for number in message.requests:
            waiting = self._outstanding.get(number)
            if waiting is None:
                continue
            deadline = min(now + waiting.timeout_s, waiting.latest)
            if deadline > waiting.deadline:
                waiting.deadline = deadline
                heapq.heappush(self._deadlines, (deadline, number))

    def _answer(self, message: AnyMessage, batches: Sequence[Frame]) -> list[Reply]:
        waiting = self._outstanding.pop(message.id, None)
        if waiting is None:
            return []
        if isinstance(message, Failure):
            error = error_for(message.code, message.text, message.fields)
            return [Reply(waiting.context, None, (), error)]
        return [Reply(waiting.context, message, batches, None)]

    def _give_up(self, number: int) -> _InFlightRequest | None:
        """Stop waiting for an answer, without restarting the measurement of silence."""
        waiting = self._outstanding.pop(number, None)
        self._owing |= waiting is not None
        return waiting

    def _expire(self, now: float) -> list[Reply]:
        replies: list[Reply] = []
        while self._deadlines and self._deadlines[0][0] <= now:
            deadline, number = heapq.heappop(self._deadlines)
            waiting = self._outstanding.get(number)
            if waiting is not None and waiting.deadline > deadline:
                continue  # it was put off
            waiting = self._give_up(number)
            if waiting is not None:
                text = (
                    f"no answer from {self.endpoint} in time: is the node up? try `logboom doctor`"
                )
                replies.append(Reply(waiting.context, None, (), self.hindrance or TimedOut(text)))
        return replies

    def _lose(self, now: float) -> None:
        self.state = "greeting"
        self._redial_at = now + backoff(self._losses, self._rng, REDIAL_FIRST_S, REDIAL_LAST_S)
        self._losses += 1


def _fault_text(fault: HandshakeFault, endpoint: str, identity: Identity) -> str:
    """Return the error of a handshake that failed, with the remedy."""
    user = identity.user or "the user"
    match fault:
        case "key":
            return (
                f"the node at {endpoint} does not accept the key of {user}: it is unknown, has ended, "
                "or its user is disabled (`logboom user describe` tells an administrator)"
            )
        case "server":
            return (
                f"the node at {endpoint} has another key than the one known here, or serves this "
                "port without keys: compare [[servers]] of the credentials file with the node's"
            )
        case "unknown-server":
            return (
                f"no public key of the node at {endpoint} is known, so it is not dialled: add it to "
                "[[servers]] of the credentials file"
            )
        case "no-key":
            return (
                f"the node at {endpoint} asks for a key: connect with a credentials file, e.g. "
                "LOGBOOM_CREDENTIALS=alice.toml (`logboom user create` makes one)"
            )


__all__ = ["HELLO_ID", "Pong", "Reply", "Session"]
