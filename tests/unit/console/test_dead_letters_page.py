"""Dead letters: causes, lists, one letter, and the commands of what sends them again."""

from __future__ import annotations

import pytest

from logboom.client.admin_flows.dead_letter_flows import (
    DeadLetter,
    DeadLetterQueue,
    DeadLetterSummary,
    dead_letter,
)
from logboom.client.results import Message
from logboom.console.consumer_survey import DeadLetterCount, build_survey
from logboom.console.job_states import JobState
from logboom.console.pages.dead_letters_page import (
    CauseSample,
    build_letter,
    build_letters,
    build_owners,
    cause_kind,
    cause_text,
    causes_line,
    edited_form,
    origin_url,
    sample_causes,
)
from logboom.console.routes.dead_letter_routes import (
    chosen_command,
    edit_command,
    many_command,
    places_of,
    rate_of,
    value_of,
)
from logboom.console.widgets.page_query import FormValues, PageQuery
from logboom.wire.errors import InvalidRequest
from logboom.wire.group_view import GroupOffsets, GroupSummary
from logboom.wire.survey_messages import CursorSurvey, GroupSurvey, QueueSurvey


def letter(offset: int, cause: str = "OSError: closed", value: bytes = b"v") -> DeadLetter:
    headers = {
        "boom-origin": b"orders/3/12",
        "boom-attempt": b"16",
        "boom-cause": cause.encode(),
    }
    return dead_letter(Message("%DLQ%billing", 0, offset, b"k", value, None, headers, 1_000))


def summary(first: int = 0, begun: int = 0, end: int = 10) -> DeadLetterSummary:
    return DeadLetterSummary("billing", [DeadLetterQueue(0, first, begun, end)], 1_000)


@pytest.mark.parametrize(
    ("cause", "kind", "text"),
    [
        ("timeout after 1500 ms", "timeout after # ms", "timeout after"),
        ("order 7f1c2f7e-1d0a-4a53-9d1e-77f0d1a3c001: gone", "order #: gone", "order"),
        ("at 0xdeadbeef", "at #", "at"),
        ("", "no cause was given", ""),
        ("KeyError: 'iban'", "KeyError: 'iban'", "KeyError: 'iban'"),
    ],
)
def test_causes_that_differ_in_numbers_and_ids_count_as_one(
    cause: str, kind: str, text: str
) -> None:
    assert cause_kind(cause) == kind
    assert cause_text(kind) == text
    assert text in cause


def test_causes_are_counted_the_most_frequent_first() -> None:
    letters = [letter(n, f"timeout after {n} ms") for n in range(3)] + [letter(9)]
    sample = sample_causes(letters)
    assert sample == CauseSample((("timeout after # ms", 3), ("OSError: closed", 1)), 4, 1_000)
    assert causes_line(sample, 4) == "timeout after # ms (3), OSError: closed (1)"
    assert causes_line(sample, 900).endswith("; of the first 4")
    many = CauseSample(tuple((f"c{n}", 1) for n in range(5)), 5, None)
    assert causes_line(many, 5) == "c0 (1), c1 (1), c2 (1), and 2 more"


def test_a_survey_tells_what_was_not_sent_again() -> None:
    topics = {1: "%DLQ%billing", 2: "%DLQ%orders%mail", 3: "%DLQ%gone"}
    billing = GroupSurvey(
        GroupSummary("billing", 1, "clustering", [], 0, "", 1, 1, ""),
        [GroupOffsets(1, "%DLQ%billing", False, [4, -1], [4, 0])],
    )
    queues = {
        (1, 0): QueueSurvey(1, 0, 2, 10, 1),
        (1, 1): QueueSurvey(1, 1, 0, 3, 1),
        (2, 0): QueueSurvey(2, 0, 0, 5, 1, [CursorSurvey("redrive", 4, 1, 0)]),
        (3, 0): QueueSurvey(3, 0, 1, 2, 1),
    }
    found = build_survey(1.0, [billing], queues, {}, topics).dead
    assert [*found.values()] == [
        DeadLetterCount("billing", 11, 9),
        DeadLetterCount("gone", 1, 1),
        DeadLetterCount("orders%mail", 5, 1),
    ]


def test_owners_without_letters_are_shown_if_asked_for() -> None:
    owners = [DeadLetterCount("a", 0, 0), DeadLetterCount("b", 9, 0), DeadLetterCount("c%d", 5, 5)]
    samples = {"c%d": CauseSample((("x", 5),), 5, 1_000)}

    def shown(parameters: str) -> list[str]:
        model = build_owners(owners, samples, PageQuery("/dead-letters", parameters))
        assert (model.open, model.stored, model.empty) == (5, 14, 1)
        return [row.source["owner"] for row in model.table.rows]

    assert shown("") == ["c%d", "b"]
    assert shown("empty=1&sort=owner") == ["a", "b", "c%d"]


def test_letters_of_one_cause_are_chosen_by_the_address() -> None:
    letters = [letter(n, f"timeout after {n} ms") for n in range(3)] + [letter(9)]
    query = PageQuery("/dead-letters/billing", "cause=OSError%3A+closed")
    jobs = [JobState(1, "Send", "billing", 10, 1_000, done=5)]
    model = build_letters(summary(), letters, jobs, 2_000, query)
    assert [row.source["place"] for row in model.table.rows] == ["0/9"]
    assert [(each.count, each.current) for each in model.causes] == [(3, False), (1, True)]
    # Another click on a cause shows all again.
    assert model.causes[1].url == "/dead-letters/billing"
    assert (model.read, model.whole, model.kind) == (4, False, "group")
    assert (model.jobs[0].rate_per_s, model.jobs[0].left_ms) == (5.0, 1_000)
    row = model.table.rows[0].source
    assert (row["attempts"], row["origin"]) == (16, "orders/3/12")


def test_a_subscription_is_an_owner_too() -> None:
    found = DeadLetterSummary("orders%mail", [DeadLetterQueue(0, 0, 0, 1)], None)
    model = build_letters(found, [letter(0)], [], 0, PageQuery("/x"))
    assert (model.kind, model.owner_url) == ("subscription", "/subscriptions/orders/mail")


@pytest.mark.parametrize("show_as", ["text", "json", "msgpack", "hex"])
def test_a_letter_is_shown_in_each_way(show_as: str) -> None:
    value = b'{"a": 1}' if show_as != "msgpack" else b"\x81\xa1a\x01"
    query = PageQuery("/dead-letters/billing/0/5", f"as={show_as}")
    model = build_letter(summary(end=6), letter(5, value=value), query)
    assert (model.value.kind, model.value.problem) == (show_as, "")
    assert (model.place, model.is_open) == ("0/5", True)
    assert (model.previous_url, model.next_url) == ("/dead-letters/billing/0/4", "")
    assert model.origin_url == "/topics/orders/3/12"
    assert not build_letter(summary(begun=6), letter(5), query).is_open


def test_an_origin_that_is_none_leads_nowhere() -> None:
    assert [origin_url(text) for text in (None, "", "orders", "orders/x/1")] == ["", "", "", ""]
    assert origin_url("a/b/1/2") == "/topics/a%2Fb/1/2"


def test_a_value_that_is_no_text_is_edited_in_base64() -> None:
    assert edited_form(b"a\nb") == ("text", "a\nb")
    assert edited_form(b"\xff\x00") == ("base64", "/wA=")
    assert edited_form(b"a\r\nb")[0] == "base64"
    for data in (b"a\nb", b"\xff\x00", b"a\r\nb", b""):
        encoding, text = edited_form(data)
        assert value_of(FormValues([("value", text), ("encoding", encoding)])) == data
    with pytest.raises(InvalidRequest, match="base64"):
        value_of(FormValues([("value", "?"), ("encoding", "base64")]))


def test_commands_do_the_same() -> None:
    chosen = FormValues([("owner", "b"), ("at", "1/7"), ("at", "0/3"), ("rate", "50")])
    assert places_of(chosen) == [(0, 3), (1, 7)]
    assert list(chosen_command(chosen)) == [
        *("dlq", "redrive", "b", "--at", "0/3", "--at", "1/7", "--rate", "50", "--yes")
    ]
    many = FormValues(
        [("owner", "b"), ("cause", "bank is"), ("queues", "0"), ("count", "5"), ("again", "on")]
    )
    assert list(many_command(many)) == [
        *("dlq", "redrive", "b", "--cause", "bank is", "--queue", "0", "--count", "5", "--all"),
        "--yes",
    ]
    edit = FormValues([("owner", "b"), ("at", "0/3"), ("value", "x y"), ("encoding", "text")])
    assert list(edit_command(edit))[-3:] == ["--value", "x y", "--yes"]
    for bad in ("0", "a/1", "0/", "-1/2"):
        with pytest.raises(InvalidRequest):
            places_of(FormValues([("at", bad)]))
    for bad in ("-1", "fast", "nan", "inf"):
        with pytest.raises(InvalidRequest):
            rate_of(FormValues([("rate", bad)]))
