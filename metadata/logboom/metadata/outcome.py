"""What applying one command comes to, before the metadata version is known."""

from __future__ import annotations

from typing import Final, NamedTuple


class Outcome(NamedTuple):
    """An error code (empty: done) with its one line and fields, or a value."""

    code: str = ""
    text: str = ""
    fields: dict[str, str | int | None] | None = None
    value: int | list[str] | None = None


DONE: Final = Outcome()


def refused(code: str, text: str, **fields: str | int | None) -> Outcome:
    """The command changed nothing; `text` says why and how to mend it."""
    return Outcome(code, text, fields)


def unknown_topic(name: str) -> Outcome:
    """UNKNOWN_TOPIC."""
    text = f"topic {name!r} does not exist: create it with `logboom topic create {name}`"
    return refused("UNKNOWN_TOPIC", text, topic=name)


def unknown_broker(broker: str) -> Outcome:
    """UNKNOWN_BROKER."""
    text = f"broker {broker!r} is not registered: see `logboom cluster status` for those that are"
    return refused("UNKNOWN_BROKER", text, broker=broker)


def fenced(broker: str) -> Outcome:
    """FENCED: the instance epoch is not that of the broker's current registration."""
    return refused("FENCED", f"broker {broker!r} is fenced: it must register again", broker=broker)
