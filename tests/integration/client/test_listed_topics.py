"""Who lists topics again and again gets what a client that asks for the first time would get."""

from __future__ import annotations

from collections.abc import Callable

from logboom.client import Client, connect
from logboom.deploy import embedded
from logboom.wire.view import TopicView
from tests.integration.users import new_credentials


def test_a_list_follows_topics_and_rights() -> None:
    with embedded(secure=True) as node:
        mine = new_credentials(node, "alice")
        with connect(str(node.credentials)) as boom:
            admin = boom.admin
            admin.create_user("alice", mine.key_pair.public)
            admin.add_rule("user:alice", "allow", "describe", "topic", "a*")
            admin.create_topic("apples", queues=1)
            steps: list[tuple[Callable[[], object], set[str], set[str]]] = [
                (lambda: None, {"apples"}, {"apples"}),
                (
                    lambda: admin.create_topic("bananas", queues=1),
                    {"apples", "bananas"},
                    {"apples"},
                ),
                (
                    lambda: admin.add_rule("user:alice", "allow", "describe", "topic", "b*"),
                    {"apples", "bananas"},
                    {"apples", "bananas"},
                ),
                (
                    lambda: admin.alter_topic("bananas", queues=3),
                    {"apples", "bananas"},
                    {"apples", "bananas"},
                ),
                (
                    lambda: admin.remove_rule("user:alice", "allow", "describe", "topic", "a*"),
                    {"apples", "bananas"},
                    {"bananas"},
                ),
                (lambda: admin.delete_topic("apples"), {"bananas"}, {"bananas"}),
                (lambda: _replace(boom, "bananas"), {"bananas"}, {"bananas"}),
            ]
            with connect(node.endpoints, credentials=mine) as own:
                for act, all_names, own_names in steps:
                    act()
                    assert {topic.name for topic in admin.topics()} == all_names
                    assert {topic.name for topic in own.admin.topics()} == own_names
                    assert admin.topics() == _anew(str(node.credentials))
                    with connect(node.endpoints, credentials=mine) as fresh:
                        assert own.admin.topics() == fresh.admin.topics()


def _replace(boom: Client, topic: str) -> None:
    boom.admin.delete_topic(topic)
    boom.admin.create_topic(topic)


def _anew(credentials: str) -> list[TopicView]:
    with connect(credentials) as boom:
        return boom.admin.topics()
