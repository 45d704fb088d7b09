"""The table of all errors: every code that travels in an answer or is raised to a user.

LogboomError
├── RetryableError            the same request may succeed later; the client retries by itself
│   ├── TimedOut              TIMED_OUT
│   ├── Unavailable           UNAVAILABLE, BUSY, SHUTTING_DOWN, CONFLICT, DISK_FULL
│   ├── NotLeader             NOT_LEADER, STALE_EPOCH, NOT_COORDINATOR  (fields: leader, epoch)
│   └── NotEnoughReplicas     NOT_ENOUGH_REPLICAS
├── InvalidRequest            INVALID_NAME, INVALID_ARGUMENT, MALFORMED, UNKNOWN_TYPE, TOO_LARGE,
│   │                         BROKER_TAKEN
│   └── InvalidFilter         INVALID_FILTER               (fields: expression, position, expected)
├── UnknownResource           UNKNOWN_TOPIC, UNKNOWN_QUEUE, UNKNOWN_BROKER, UNKNOWN_GROUP,
│                             UNKNOWN_SUBSCRIPTION, UNKNOWN_USER, UNKNOWN_ROLE
├── AlreadyExists             TOPIC_EXISTS, USER_EXISTS, ROLE_EXISTS
├── Refused                   UNSUPPORTED_VERSION, TOO_FEW_BROKERS, FENCED, NO_MAJORITY,
│   │                         QUOTA_EXCEEDED, CONSUMER_BUSY (fields: consumer, who has it)
│   ├── Unauthenticated       UNAUTHENTICATED              (the key is wrong, unknown, or ended)
│   └── Forbidden             FORBIDDEN                    (fields: verb, kind, name)
├── ProducerError             OUT_OF_ORDER_SEQUENCE, FENCED_PRODUCER
├── GroupError                SUBSCRIPTION_MISMATCH, UNKNOWN_MEMBER, NOT_OWNER, BEYOND_END,
│                             GROUP_NOT_EMPTY, INSTANCE_TAKEN, UNKNOWN_CONSUMER,
│                             ACK_REFUSED                  (fields: messages, refused)
├── TransactionError          TRANSACTION_ABORTED, TRANSACTION_CLOSED, UNKNOWN_HANDLES,
│                             APPLICATION_TAKEN            (fields: owner, committed)
├── OffsetOutOfRange          OFFSET_OUT_OF_RANGE
├── DamagedBatch              DAMAGED_BATCH                (a checksum or a length does not hold)
├── DataDamaged               DATA_DAMAGED                 (no good copy of stored data here)
├── ClientClosed              CLOSED, FORKED
├── StartError                PORT_IN_USE, WRONG_DATA_FOLDER, NEWER_FORMAT, BAD_CONFIG
└── InternalError             INTERNAL

A code is what travels; a class is what a program catches. `error_for` maps one to the other.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final


class LogboomError(Exception):
    """Root of all errors. `str(error)` is one line with the problem and the remedy."""

    default_code: ClassVar[str] = "INTERNAL"
    retryable: ClassVar[bool] = False

    def __init__(self, text: str, code: str | None = None, **fields: Any) -> None:
        super().__init__(text)
        self.text = text
        self.code = code or self.default_code
        self.fields: dict[str, Any] = fields

    def __reduce__(self) -> tuple[Any, ...]:
        return (error_for, (self.code, self.text, self.fields))


class RetryableError(LogboomError):
    """The same request may succeed later."""

    retryable = True


class TimedOut(RetryableError):
    """The deadline passed before an answer arrived; the outcome may be unknown."""

    default_code = "TIMED_OUT"


class Unavailable(RetryableError):
    """The node cannot serve this now: starting, stopping, busy, disk full, or a lost race."""

    default_code = "UNAVAILABLE"


class NotLeader(RetryableError):
    """Another node leads, or the epoch is stale. Fields: `leader` (id or None), `epoch`."""

    default_code = "NOT_LEADER"


class NotEnoughReplicas(RetryableError):
    """acks=all was requested, but the ISR is smaller than min_in_sync."""

    default_code = "NOT_ENOUGH_REPLICAS"


class InvalidRequest(LogboomError):
    """The request breaks a stated rule; sending it again cannot help."""

    default_code = "INVALID_ARGUMENT"


class InvalidFilter(InvalidRequest):
    """A filter expression is invalid; `pointer()` shows the character.

    Fields: `expression` as it was given, `position` (characters before the wrong one, or the length
    if something is missing at the end) and `expected`, a description of valid input there.
    """

    default_code = "INVALID_FILTER"

    def pointer(self, width: int = 76) -> str:
        """Return two lines: the expression around the character, and a caret below it."""
        expression = str(self.fields.get("expression", ""))
        at = self.fields.get("position", 0)
        at = min(max(at, 0), len(expression)) if isinstance(at, int) else 0
        first = max(0, at - width // 2)
        # A tab or a line end would move the caret away from its character.
        shown = "".join(c if c.isprintable() else " " for c in expression[first : first + width])
        return f"{shown}\n{' ' * (at - first)}^ expected {self.fields.get('expected', '')}"


class UnknownResource(LogboomError):
    """The topic, queue, broker, subscription or consumer group does not exist."""

    default_code = "UNKNOWN_TOPIC"


class AlreadyExists(LogboomError):
    """A topic of this name exists already."""

    default_code = "TOPIC_EXISTS"


class Refused(LogboomError):
    """The other side refuses: wrong version or key, too few brokers, or fenced."""

    default_code = "FENCED"


class Unauthenticated(Refused):
    """The other side does not accept the key: it is unknown, disabled, ended, or none was given."""

    default_code = "UNAUTHENTICATED"


class Forbidden(Refused):
    """No access rule allows the request. Fields: `verb`, `kind` and `name` of the resource."""

    default_code = "FORBIDDEN"


class ProducerError(LogboomError):
    """The producer's sequence or epoch does not match the queue."""

    default_code = "OUT_OF_ORDER_SEQUENCE"


class GroupError(LogboomError):
    """A member is not in its group, or its request does not match the group's state.

    UNKNOWN_MEMBER: join again. INSTANCE_TAKEN: do not come again, because another process has this
    one's name in its group or subscription. Fields of SUBSCRIPTION_MISMATCH: `version`, and `missing`, `extra` and
    `different`, topics for which the member's subscription differs from the group's. Fields of
    ACK_REFUSED: `messages`, their number, and `refused`, the first spans of them as [topic, queue,
    first offset, offset behind].
    """

    default_code = "UNKNOWN_MEMBER"


class TransactionError(LogboomError):
    """The transaction cannot continue: none of it was, or will be, published."""

    default_code = "TRANSACTION_ABORTED"


class OffsetOutOfRange(LogboomError):
    """The offset lies outside [min_offset, max_offset]."""

    default_code = "OFFSET_OUT_OF_RANGE"


class DamagedBatch(LogboomError):
    """A batch has a wrong checksum, length or version."""

    default_code = "DAMAGED_BATCH"


class DataDamaged(LogboomError):
    """Stored data is damaged and no good copy is reachable."""

    default_code = "DATA_DAMAGED"


class ClientClosed(LogboomError):
    """The client was closed, or this process forked from the one that opened it."""

    default_code = "CLOSED"


class StartError(LogboomError):
    """A node cannot start: port, data folder, format or configuration."""

    default_code = "BAD_CONFIG"


class InternalError(LogboomError):
    """A bug in logboom; the text contains the details to report."""

    default_code = "INTERNAL"


CODES: Final[dict[str, type[LogboomError]]] = {
    "TIMED_OUT": TimedOut,
    "UNAVAILABLE": Unavailable,
    "BUSY": Unavailable,
    "SHUTTING_DOWN": Unavailable,
    "CONFLICT": Unavailable,
    "DISK_FULL": Unavailable,
    "NOT_LEADER": NotLeader,
    "STALE_EPOCH": NotLeader,
    "NOT_COORDINATOR": NotLeader,
    "NOT_ENOUGH_REPLICAS": NotEnoughReplicas,
    "INVALID_NAME": InvalidRequest,
    "INVALID_ARGUMENT": InvalidRequest,
    "MALFORMED": InvalidRequest,
    "UNKNOWN_TYPE": InvalidRequest,
    "TOO_LARGE": InvalidRequest,
    "BROKER_TAKEN": InvalidRequest,
    "INVALID_FILTER": InvalidFilter,
    "UNKNOWN_TOPIC": UnknownResource,
    "UNKNOWN_QUEUE": UnknownResource,
    "UNKNOWN_BROKER": UnknownResource,
    "UNKNOWN_GROUP": UnknownResource,
    "SUBSCRIPTION_MISMATCH": GroupError,
    "UNKNOWN_MEMBER": GroupError,
    "NOT_OWNER": GroupError,
    "BEYOND_END": GroupError,
    "GROUP_NOT_EMPTY": GroupError,
    "INSTANCE_TAKEN": GroupError,
    "UNKNOWN_USER": UnknownResource,
    "UNKNOWN_ROLE": UnknownResource,
    "TOPIC_EXISTS": AlreadyExists,
    "USER_EXISTS": AlreadyExists,
    "ROLE_EXISTS": AlreadyExists,
    "UNSUPPORTED_VERSION": Refused,
    "UNAUTHENTICATED": Unauthenticated,
    "FORBIDDEN": Forbidden,
    "QUOTA_EXCEEDED": Refused,
    "TOO_FEW_BROKERS": Refused,
    "NO_MAJORITY": Refused,
    "FENCED": Refused,
    "OUT_OF_ORDER_SEQUENCE": ProducerError,
    "FENCED_PRODUCER": ProducerError,
    "TRANSACTION_ABORTED": TransactionError,
    "TRANSACTION_CLOSED": TransactionError,
    "UNKNOWN_HANDLES": TransactionError,
    "APPLICATION_TAKEN": TransactionError,
    "OFFSET_OUT_OF_RANGE": OffsetOutOfRange,
    "DAMAGED_BATCH": DamagedBatch,
    "DATA_DAMAGED": DataDamaged,
    "CONSUMER_BUSY": Refused,
    "UNKNOWN_SUBSCRIPTION": UnknownResource,
    "UNKNOWN_CONSUMER": GroupError,
    "ACK_REFUSED": GroupError,
    "CLOSED": ClientClosed,
    "FORKED": ClientClosed,
    "PORT_IN_USE": StartError,
    "WRONG_DATA_FOLDER": StartError,
    "NEWER_FORMAT": StartError,
    "BAD_CONFIG": StartError,
    "INTERNAL": InternalError,
}
"""Every code, and the class that stands for it."""


def error_for(code: str, text: str, fields: dict[str, Any] | None = None) -> LogboomError:
    """Return the exception for a code; an unknown code becomes a plain LogboomError."""
    return CODES.get(code, LogboomError)(text, code, **(fields or {}))


def describe_exception(error: BaseException) -> str:
    """Return the class and the text of an exception of somebody else's code."""
    try:
        return f"{type(error).__name__}: {error}"
    except BaseException:  # noqa: BLE001 - the text is that code's too, and may raise anything
        return type(error).__name__
