"""Dead letters: who has some and why, those of one owner, and one letter; pure."""

from __future__ import annotations

import base64
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from logboom.client.admin_flows.dead_letter_flows import (
    DeadLetter,
    DeadLetterSummary,
    is_subscription,
)
from logboom.console.consumer_survey import DeadLetterCount
from logboom.console.job_states import JobState
from logboom.console.widgets.data_table import Row, TableColumn, TableModel, Tone, build_table
from logboom.console.widgets.page_query import PageQuery, path_of
from logboom.console.widgets.value_views import (
    MAX_ROW_BYTES,
    ODD,
    PREVIEW_BYTES,
    ValueView,
    ViewLink,
    as_text,
    asked_view,
    preview,
    replace_unprintable,
    short_bytes,
    short_text,
    shown_headers,
    trimmed,
    view_links,
    view_value,
)

CAUSES_SHOWN: Final = 3
COUNTS: Final = (200, 1_000, 5_000)
"""How many letters a page may read."""
NO_CAUSE: Final = "no cause was given"
_IDS: Final = re.compile(r"0x[0-9a-f]+|[0-9a-f]{8,}(?:-[0-9a-f]{4,}){0,4}|\d+", re.IGNORECASE)
_PLACE: Final = re.compile(r"(?P<topic>.+)/(?P<queue>\d+)/(?P<offset>\d+)")


@dataclass(frozen=True, slots=True)
class CauseCount:
    """Letters that were given up for one reason."""

    cause: str
    """Numbers and ids are #, so that causes that differ only in these count as one."""
    count: int
    share: float
    """Part of those that were read, 0 to 1."""
    url: str = ""
    current: bool = False
    text: str = ""
    """The longest part without a number, by which `redrive` finds them."""


@dataclass(frozen=True, slots=True)
class CauseSample:
    """The causes of some letters of one owner."""

    causes: tuple[tuple[str, int], ...]
    read: int
    oldest_ms: int | None


@dataclass(frozen=True, slots=True)
class DeadOwnersModel:
    """Groups and subscriptions with dead letters."""

    table: TableModel
    open: int
    stored: int
    shows_empty: bool
    empty: int
    toggle_url: str


@dataclass(frozen=True, slots=True)
class JobView:
    """Work under way, as it is shown."""

    state: JobState
    rate_per_s: float | None
    left_ms: float | None


@dataclass(frozen=True, slots=True)
class DeadLettersModel:
    """The dead letters of one owner."""

    owner: str
    kind: str
    owner_url: str
    topic_url: str
    open: int
    stored: int
    oldest_ms: int | None
    read: int
    whole: bool
    """True if all that there are were read."""
    again: bool
    causes: tuple[CauseCount, ...]
    table: TableModel
    counts: tuple[tuple[int, str, bool], ...]
    """How many may be read, the link that does, and whether it is so now."""
    again_url: str
    jobs: tuple[JobView, ...]


@dataclass(frozen=True, slots=True)
class DeadLetterModel:
    """One dead letter."""

    owner: str
    place: str
    """queue/offset in the dead-letter topic."""
    cause: str
    attempts: int | None
    origin: str
    origin_url: str
    facts: tuple[tuple[str, str], ...]
    timestamp_ms: int
    key: ValueView | None
    value: ValueView
    views: tuple[ViewLink, ...]
    headers: tuple[tuple[str, str], ...]
    is_open: bool
    """False if it was sent again."""
    previous_url: str
    next_url: str


def cause_kind(cause: str) -> str:
    """Return a cause with # in the place of numbers and ids."""
    return replace_unprintable(_IDS.sub("#", cause[:PREVIEW_BYTES])).strip() or NO_CAUSE


def cause_text(kind: str) -> str:
    """Return the longest part of a kind that all its causes have in them; "" if there is none."""
    return "" if kind == NO_CAUSE else max(re.split(f"[#{ODD}]", kind), key=len).strip()


def sample_causes(letters: Sequence[DeadLetter]) -> CauseSample:
    """Return the causes of some letters, the most frequent first."""
    counted = Counter(cause_kind(each.cause) for each in letters)
    causes = sorted(counted.items(), key=lambda each: (-each[1], each[0]))
    oldest = min((each.message.timestamp_ms for each in letters), default=None)
    return CauseSample(tuple(causes), len(letters), oldest)


def causes_line(sample: CauseSample, left: int) -> str:
    """Return the most frequent causes in one line."""
    shown = [f"{cause} ({count})" for cause, count in sample.causes[:CAUSES_SHOWN]]
    rest = len(sample.causes) - CAUSES_SHOWN
    if rest > 0:
        shown.append(f"and {rest} more")
    text = ", ".join(shown)
    return text if left <= sample.read or not text else f"{text}; of the first {sample.read:,}"


def _open_tone(row: Row) -> Tone:
    return "failed" if row["open"] else ""


OWNER_COLUMNS: Final = (
    TableColumn("owner", "Owner", "code", href=lambda row: path_of("dead-letters", row["owner"])),
    TableColumn("kind", "Kind", wide_only=True),
    TableColumn("open", "Not sent again", "count", tone=_open_tone),
    TableColumn("oldest_ms", "Oldest", "time", wide_only=True),
    TableColumn("causes", "Causes"),
    TableColumn("stored", "Stored", "count", wide_only=True, hint="Those sent again included"),
)


def build_owners(
    owners: Sequence[DeadLetterCount], samples: Mapping[str, CauseSample], query: PageQuery
) -> DeadOwnersModel:
    """Return the list of owners; those without letters only if they are asked for."""
    shows_empty = query.text("empty") == "1"
    rows: list[dict[str, Any]] = []
    for each in owners:
        sample = samples.get(each.owner)
        if each.stored or shows_empty:
            rows.append(
                {
                    "owner": each.owner,
                    "kind": "subscription" if is_subscription(each.owner) else "group",
                    "open": each.open,
                    "stored": each.stored,
                    "causes": None if sample is None else causes_line(sample, each.open),
                    "oldest_ms": None if sample is None else sample.oldest_ms,
                }
            )
    table = build_table(
        OWNER_COLUMNS,
        rows,
        query,
        sort="-open",
        empty="There are no dead letters. A message becomes one when its deliveries have failed too "
        "often.",
    )
    return DeadOwnersModel(
        table,
        sum(each.open for each in owners),
        sum(each.stored for each in owners),
        shows_empty,
        sum(not each.stored for each in owners),
        query.url(empty=None if shows_empty else "1", page=None),
    )


def _letter_url(row: Row) -> str:
    return path_of("dead-letters", row["owner"], *str(row["place"]).split("/"))


LETTER_COLUMNS: Final = (
    TableColumn("place", "Queue/offset", "code", href=_letter_url),
    TableColumn("cause", "Cause"),
    TableColumn("attempts", "Attempts", "count", wide_only=True),
    TableColumn(
        "origin", "Origin", "code", href=lambda row: origin_url(row["origin"]), wide_only=True
    ),
    TableColumn("key", "Key", "code", wide_only=True),
    TableColumn("value", "Value", "code", wide_only=True),
    TableColumn("time_ms", "Message time", "time", wide_only=True),
)


def origin_url(origin: str | None) -> str:
    """Return where the original of a letter is shown; "" if it did not say."""
    match = _PLACE.fullmatch(origin or "")
    return "" if match is None else path_of("topics", *match.group("topic", "queue", "offset"))


def trimmed_letter(letter: DeadLetter) -> DeadLetter:
    """Return what a list needs of a letter, which may be long."""
    return DeadLetter(
        trimmed(letter.message),
        letter.origin[:PREVIEW_BYTES],
        letter.attempts,
        letter.cause[:PREVIEW_BYTES],
    )


def letter_row(owner: str, letter: DeadLetter) -> dict[str, Any]:
    """Return what the list says of a letter."""
    message = letter.message
    return {
        "owner": owner,
        "place": f"{message.queue}/{message.offset}",
        "cause": short_text(letter.cause) or None,
        "attempts": letter.attempts,
        "origin": short_text(letter.origin) or None,
        "key": short_bytes(message.key) or None,
        "value": preview(message.value),
        "time_ms": message.timestamp_ms,
    }


def read_count(query: PageQuery) -> int:
    """Return how many letters a page reads."""
    asked = query.number("count", COUNTS[0])
    return asked if asked in COUNTS else COUNTS[0]


def build_letters(
    summary: DeadLetterSummary,
    letters: Sequence[DeadLetter],
    jobs: Sequence[JobState],
    now_ms: int,
    query: PageQuery,
) -> DeadLettersModel:
    """Return the letters of one owner, of one cause if it is chosen."""
    owner, again = summary.owner, query.text("again") == "1"
    sample = sample_causes(letters)
    asked = query.text("cause")
    chosen = [each for each in letters if asked in ("", cause_kind(each.cause))]
    causes = tuple(
        CauseCount(
            cause,
            count,
            count / sample.read,
            query.url(cause=None if cause == asked else cause, page=None),
            cause == asked,
            cause_text(cause),
        )
        for cause, count in sample.causes
    )
    topic, _, subscription = owner.partition("%")
    total = summary.messages if again else summary.open
    table = build_table(
        LETTER_COLUMNS,
        [letter_row(owner, each) for each in chosen],
        query,
        title="Letters",
        empty="All of them were sent again." if summary.messages else "There are none.",
    )
    return DeadLettersModel(
        owner=owner,
        kind="subscription" if subscription else "group",
        owner_url=path_of("subscriptions", topic, subscription)
        if subscription
        else path_of("groups", owner),
        topic_url=path_of("topics", f"%DLQ%{owner}"),
        open=summary.open,
        stored=summary.messages,
        oldest_ms=summary.oldest_ms,
        read=len(letters),
        whole=len(letters) >= total,
        again=again,
        causes=causes,
        table=table,
        counts=tuple(
            (count, query.url(count=count, page=None), count == read_count(query))
            for count in COUNTS
        ),
        again_url=query.url(again=None if again else "1", page=None),
        jobs=tuple(JobView(each, each.rate_per_s(now_ms), each.left_ms(now_ms)) for each in jobs),
    )


def build_letter(
    summary: DeadLetterSummary, letter: DeadLetter, query: PageQuery
) -> DeadLetterModel:
    """Return one letter."""
    message = letter.message
    queue = next(each for each in summary.queues if each.queue == message.queue)

    def place_url(offset: int) -> str:
        inside = queue.first <= offset < queue.end
        return path_of("dead-letters", summary.owner, queue.queue, offset) if inside else ""

    return DeadLetterModel(
        owner=summary.owner,
        place=f"{message.queue}/{message.offset}",
        cause=short_text(letter.cause),
        attempts=letter.attempts,
        origin=short_text(letter.origin),
        origin_url=origin_url(letter.origin),
        facts=(
            ("Tag", short_text(message.tag or "none")),
            ("Bytes of the value", f"{len(message.value or b''):,}"),
        ),
        timestamp_ms=message.timestamp_ms,
        key=None if message.key is None else view_value(message.key, most=MAX_ROW_BYTES),
        value=view_value(message.value, asked_view(query)),
        views=view_links(query),
        headers=shown_headers(message.headers),
        is_open=message.offset >= queue.begun,
        previous_url=place_url(message.offset - 1),
        next_url=place_url(message.offset + 1),
    )


def edited_form(value: bytes | None) -> tuple[str, str]:
    """Return how a value is edited, "text" or "base64", and the text to edit."""
    data = value or b""
    text = as_text(data)
    if text is None or "\r" in text:  # A browser would make other line ends of these.
        return "base64", base64.b64encode(data).decode()
    return "text", text
