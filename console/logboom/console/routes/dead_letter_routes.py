"""Dead letters: who has some, those of one owner, one letter; editing and sending them again."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from logboom.client.admin_flows.dead_letter_flows import (
    DeadLetter,
    DeadLetterSummary,
    QueueOffset,
)
from logboom.client.written_values import counted, queue_numbers
from logboom.console.consumer_survey import DeadLetterCount
from logboom.console.job_states import JobWork
from logboom.console.pages.dead_letters_page import (
    CauseSample,
    DeadLetterModel,
    DeadLettersModel,
    DeadOwnersModel,
    build_letter,
    build_letters,
    build_owners,
    edited_form,
    read_count,
    sample_causes,
    trimmed_letter,
)
from logboom.console.site import (
    ActionDone,
    ActionPreview,
    ConsoleAction,
    FormField,
    NavigationEntry,
    PageRequest,
    PageRoute,
    Subject,
)
from logboom.console.widgets.page_query import FormValues, path_of
from logboom.wire.errors import InvalidRequest, OffsetOutOfRange

SAMPLED_OWNERS: Final = 20
"""Owners whose causes the list tells: those with the most letters."""
SAMPLED_LETTERS: Final = 200
SAMPLE_KEPT_S: Final = 60.0
AT_ONCE: Final = 200
"""Letters that are sent while the viewer waits; more are sent in the background."""

OWNER: Final = FormField("owner", kind="hidden", required=True)


async def load_owners(request: PageRequest) -> DeadOwnersModel:
    """Return who has dead letters, from the newest survey, with the causes of the first letters."""
    survey = await request.cluster.consumers.survey()
    most = sorted(survey.dead.values(), key=lambda each: -each.open)[:SAMPLED_OWNERS]
    samples = {each.owner: await _sample(request, each) for each in most if each.open}
    return build_owners([*survey.dead.values()], samples, request.query)


async def _sample(request: PageRequest, owner: DeadLetterCount) -> CauseSample:
    letters = request.cluster.boom.dead_letters

    async def ask() -> CauseSample:
        return sample_causes(await letters.read(owner.owner, count=SAMPLED_LETTERS))

    # It is asked anew once letters came or were sent, and else rarely.
    key = f"causes of {owner.owner} {owner.open} {owner.stored}"
    return await request.cluster.cached(key, ask, SAMPLE_KEPT_S)


async def load_letters(request: PageRequest) -> DeadLettersModel:
    """Ask for the letters of one owner."""
    owner, query = request.parts["owner"], request.query
    again, count = query.text("again") == "1", read_count(query)
    admin = request.cluster.boom.dead_letters

    async def ask() -> tuple[DeadLetterSummary, list[DeadLetter]]:
        letters = await admin.read(owner, count=count, again=again)
        return await admin.describe(owner), [trimmed_letter(each) for each in letters]

    summary, letters = await request.cluster.cached(f"dead {owner} {count} {again}", ask)
    jobs = request.cluster.jobs.of(owner)
    return build_letters(summary, letters, jobs, request.now_ms, query)


async def load_letter(request: PageRequest) -> DeadLetterModel:
    """Ask for one letter."""
    owner = request.parts["owner"]
    queue, offset = _number(request.parts["queue"]), _number(request.parts["offset"])
    admin = request.cluster.boom.dead_letters
    letter = await admin.get(owner, queue, offset)
    return build_letter(await admin.describe(owner), letter, request.query)


def _number(text: str) -> int:
    if not text.isdecimal() or len(text) > 18:
        raise OffsetOutOfRange(f"{text!r} is no number of a queue or an offset")
    return int(text)


# ── sending again ───────────────────────────────────────────────────────────────────────────────


def places_of(values: FormValues) -> list[QueueOffset]:
    """Return the chosen letters.

    Raises:
        InvalidRequest: a place is not of the form 0/17.
    """
    found = []
    for text in values.all("at"):
        queue, _, offset = text.partition("/")
        if not (queue.isdecimal() and offset.isdecimal()) or len(text) > 30:
            raise InvalidRequest(f"{text!r} names no dead letter: write queue/offset, e.g. 0/17")
        found.append((int(queue), int(offset)))
    return sorted(set(found))


def rate_of(values: FormValues) -> float:
    """Return how many may be sent in a second; 0: as fast as it goes.

    Raises:
        InvalidRequest: it is no number from 0.
    """
    said = values.text("rate") or "0"
    try:
        rate = float(said)
    except ValueError:
        rate = -1
    if not 0 <= rate < 1e9:
        raise InvalidRequest(f"{said!r} is no rate: write a number of messages per second")
    return rate


def _rate_words(values: FormValues) -> list[str]:
    return ["--rate", values.text("rate")] if values.text("rate") not in ("", "0") else []


async def _send(
    request: PageRequest,
    owner: str,
    total: int,
    rate: float,
    send: JobWork,
) -> ActionDone:
    """Send few letters now, and many in the background."""
    url = path_of("dead-letters", owner)
    if total <= AT_ONCE and not rate:
        sent = await send(lambda _: None)
        return ActionDone(f"{counted(sent, 'message')} were sent to {owner} again.", url)
    title = f"Send {counted(total, 'dead letter')} to {owner} again"
    request.cluster.jobs.start(title, owner, total, send)
    return ActionDone(f"{counted(total, 'message')} are on their way to {owner}.", url)


RATE: Final = FormField(
    "rate",
    "At most so many per second",
    "number",
    hint="0 or nothing: as fast as it goes.",
    default="0",
)


def chosen_command(values: FormValues) -> Sequence[str]:
    """Return the words of `logboom dlq redrive` with chosen letters."""
    words = ["dlq", "redrive", values.text("owner")]
    for queue, offset in places_of(values):
        words += ["--at", f"{queue}/{offset}"]
    return [*words, *_rate_words(values), "--yes"]


async def redrive_chosen(request: PageRequest, values: FormValues) -> ActionDone:
    """Send chosen letters."""
    owner, chosen, rate = values.text("owner"), places_of(values), rate_of(values)
    admin = request.cluster.boom.dead_letters

    async def send(on_sent: Callable[[int], object]) -> int:
        return await admin.redrive(owner, chosen=chosen, per_s=rate, on_sent=on_sent)

    return await _send(request, owner, len(chosen), rate, send)


REDRIVE_CHOSEN: Final = ConsoleAction(
    name="dead-letter.redrive",
    title="Send dead letters again",
    button="Send them again",
    fields=(OWNER, FormField("at", "A dead letter", kind="hidden", required=True)),
    command=chosen_command,
    question=lambda values: (
        f"Send {counted(len(places_of(values)), 'dead letter')} to {values.text('owner')} again? It "
        "gets them as first deliveries, and nobody else does."
    ),
    run=redrive_chosen,
)


def many_command(values: FormValues) -> Sequence[str]:
    """Return the words of `logboom dlq redrive` with a choice by cause, queues or number."""
    words = ["dlq", "redrive", values.text("owner")]
    if cause := values.raw("cause").strip():
        words += ["--cause", cause]
    if queues := values.text("queues"):
        words += ["--queue", queues]
    if count := values.text("count"):
        words += ["--count", count]
    if values.flag("again"):
        words.append("--all")
    return [*words, *_rate_words(values), "--yes"]


def _many(values: FormValues) -> tuple[list[int] | None, str | None, int | None, bool]:
    """Return queues, cause, the number and whether those sent before count too."""
    count = values.number("count") if values.text("count") else None
    if count is not None and count < 1:
        raise InvalidRequest(f"send 1 or more, not {count}")
    queues = queue_numbers(values.text("queues") or None)
    return queues, values.raw("cause").strip() or None, count, values.flag("again")


async def _count_many(request: PageRequest, values: FormValues) -> int:
    queues, cause, count, again = _many(values)
    found = await request.cluster.boom.dead_letters.count(
        values.text("owner"), queues=queues, again=again, cause=cause
    )
    return found if count is None else min(found, count)


async def preview_many(request: PageRequest, values: FormValues) -> ActionPreview:
    """Return how many letters would be sent, and how long that would take."""
    total, rate = await _count_many(request, values), rate_of(values)
    facts = [("Dead letters to send", f"{total:,}")]
    if rate:
        facts.append(("At this rate it takes about", f"{total / rate:,.0f} s"))
    warning = "" if total else "There is nothing to send: no dead letter matches."
    return ActionPreview(tuple(facts), warning=warning)


async def redrive_many(request: PageRequest, values: FormValues) -> ActionDone:
    """Send the letters of a cause, of some queues, or all."""
    owner, rate = values.text("owner"), rate_of(values)
    queues, cause, count, again = _many(values)
    total = await _count_many(request, values)
    if not total:
        raise InvalidRequest("no dead letter matches: nothing was sent")
    admin = request.cluster.boom.dead_letters

    async def send(on_sent: Callable[[int], object]) -> int:
        return await admin.redrive(
            owner,
            queues=queues,
            count=count,
            cause=cause,
            again=again,
            per_s=rate,
            on_sent=on_sent,
        )

    return await _send(request, owner, total, rate, send)


REDRIVE_MANY: Final = ConsoleAction(
    name="dead-letter.redrive-many",
    title="Send many dead letters again",
    button="Send them again",
    fields=(
        OWNER,
        FormField("cause", "Only those with this text in their cause"),
        FormField("queues", "Only these queues of the dead-letter topic", placeholder="0,3 or 2-5"),
        FormField("count", "At most so many", "number", hint="Nothing: all of them."),
        RATE,
        FormField("again", "Those that were sent again before, too", "checkbox"),
    ),
    command=many_command,
    question=lambda values: (
        f"Send them to {values.text('owner')} again? It gets them as first deliveries, and nobody "
        "else does."
    ),
    preview=preview_many,
    run=redrive_many,
)


def value_of(values: FormValues) -> bytes:
    """Return the edited value.

    Raises:
        InvalidRequest: it is not the base64 that it is said to be.
    """
    said = values.raw("value")
    if values.text("encoding") != "base64":
        return said.encode()
    try:
        return base64.b64decode("".join(said.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidRequest(f"the value is no base64: {error}") from None


def edit_command(values: FormValues) -> Sequence[str]:
    """Return the words of `logboom dlq redrive` with a new value."""
    encoded = values.text("encoding") == "base64"
    said = values.raw("value")
    new = ["--value-base64", "".join(said.split())] if encoded else ["--value", said]
    return ["dlq", "redrive", values.text("owner"), "--at", values.text("at"), *new, "--yes"]


async def prefill_edit(request: PageRequest, values: FormValues) -> Mapping[str, str]:
    """Return the value as it is."""
    ((queue, offset),) = places_of(values)[:1] or [(0, 0)]
    letter = await request.cluster.boom.dead_letters.get(values.text("owner"), queue, offset)
    encoding, text = edited_form(letter.message.value)
    return {"encoding": encoding, "value": text}


async def redrive_edited(request: PageRequest, values: FormValues) -> ActionDone:
    """Send one letter with another value."""
    owner, chosen = values.text("owner"), places_of(values)
    sent = await request.cluster.boom.dead_letters.redrive(
        owner, chosen=chosen, value=value_of(values)
    )
    return ActionDone(
        f"{counted(sent, 'message')} was sent to {owner} with the new value.",
        path_of("dead-letters", owner),
    )


REDRIVE_EDITED: Final = ConsoleAction(
    name="dead-letter.edit",
    title="Edit a dead letter and send it again",
    button="Send it with this value",
    fields=(
        OWNER,
        FormField("at", kind="hidden", required=True),
        FormField("value", "Value", "textarea"),
        FormField(
            "encoding",
            "The value is written as",
            "select",
            default="text",
            choices=(("text", "text (UTF-8)"), ("base64", "base64")),
        ),
    ),
    command=edit_command,
    question=lambda values: (
        f"Send the dead letter {values.text('at')} to {values.text('owner')} again, with this value? "
        "Its key, tag and headers stay, and so does the letter itself."
    ),
    prefill=prefill_edit,
    run=redrive_edited,
)


async def stop_job(request: PageRequest, values: FormValues) -> ActionDone:
    """End a run that goes on in the background."""
    owner = values.text("owner")
    number = values.number("job")
    if number not in [each.number for each in request.cluster.jobs.of(owner)]:
        raise InvalidRequest("there is no such run: it was begun by another console")
    stopped = request.cluster.jobs.stop(number)
    text = "It stops; what was sent stays sent." if stopped else "It had ended before."
    return ActionDone(text, path_of("dead-letters", owner))


STOP_JOB: Final = ConsoleAction(
    name="dead-letter.stop",
    title="Stop sending dead letters",
    button="Stop it",
    fields=(OWNER, FormField("job", kind="hidden", required=True)),
    command=lambda values: ("dlq", "list"),
    question=lambda values: (
        f"Stop sending dead letters to {values.text('owner')}? Those that were sent stay sent. On the "
        "command line, Ctrl-C in `logboom dlq redrive` does the same; this shows what is left:"
    ),
    run=stop_job,
)

SUBJECT: Final = Subject(
    pages=(
        PageRoute("/dead-letters", load_owners, "dead_letter_owners.html"),
        PageRoute("/dead-letters/{owner}", load_letters, "dead_letters.html"),
        PageRoute("/dead-letters/{owner}/{queue}/{offset}", load_letter, "dead_letter.html"),
    ),
    actions=(REDRIVE_CHOSEN, REDRIVE_MANY, REDRIVE_EDITED, STOP_JOB),
    navigation=(NavigationEntry("Dead letters", "/dead-letters", 50),),
)
