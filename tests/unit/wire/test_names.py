"""What is said of a topic that is not there leads to one that may be."""

import pytest

from logboom.wire.names import (
    group_of,
    is_a_groups,
    is_reserved,
    subscription_name_fault,
    topic_name_fault,
    unknown_topic_text,
)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("orders", "create it with `logboom topic create orders`"),
        ("a|b", "create it with `logboom topic create 'a|b'`"),
        ("%RETRY%billing", "comes with the first member of group 'billing'"),
        ("%DLQ%billing", "comes with the first member of group 'billing'"),
        ("%DLQ", "create it with"),
        ("%DLQ%orders%billing", "first consumer of subscription 'billing' of 'orders'"),
    ],
)
def test_a_topic_that_may_be_is_to_be_made(name: str, told: str) -> None:
    text = unknown_topic_text(name)
    assert f"{name!r} does not exist" in text
    assert told in text


@pytest.mark.parametrize("name", ["bad name", "", "..", "x" * 128, "a\nb", "ü", "%DLQ%a b"])
def test_a_name_that_no_topic_can_have_gets_the_rule_and_no_suggestion(name: str) -> None:
    text = unknown_topic_text(name)
    assert text == topic_name_fault(name)
    assert "1 to 127" in text
    assert "topic create" not in text
    assert "\n" not in text


def test_whose_topic_it_is() -> None:
    assert [group_of(name) for name in ("%RETRY%g", "%DLQ%%RETRY%g", "g")] == [
        "g",
        "%RETRY%g",
        None,
    ]
    assert [is_a_groups(name) for name in ("%RETRY%g", "%DLQ%t%s", "g")] == [True, False, False]
    assert subscription_name_fault("t", "s") is None
    for topic, subscription in (("t%", "s"), ("t", "a b"), ("t" * 100, "s" * 20)):
        assert "without %" in (subscription_name_fault(topic, subscription) or "")
    assert [is_reserved(name) for name in ("%RETRY%g", "%DLQ%", "RETRY")] == [True, True, False]
