"""The page of the name servers, and the end of an upgrade."""

from __future__ import annotations

from logboom.client.results import NodeStats
from logboom.console.pages.name_servers_page import NameServersModel, build_name_servers
from logboom.console.widgets.page_query import PageQuery
from logboom.wire.messages import NodeVersion, VersionsDescribed
from logboom.wire.view import NameServerView

QUERY = PageQuery("/name-servers")


def stats(name: str, applied: int = 90, **counters: float | str) -> NodeStats:
    figures: dict[str, int | float | str] = {
        "raft_role": "follower",
        "raft_term": 3,
        "raft_commit_index": 100,
        "raft_applied_index": applied,
        "in_touch": 1,
    }
    return NodeStats(name, "name-server", f"{name}:7701", figures | counters)


def page(
    *nodes: NodeStats,
    leader: str | None = "n1",
    versions: VersionsDescribed | None = None,
    members: int = 3,
) -> NameServersModel:
    servers = [NameServerView(f"n{number}", f"n{number}:7701") for number in range(1, members + 1)]
    return build_name_servers(servers, nodes, leader, versions, QUERY)


def test_three_that_are_well() -> None:
    model = page(stats("n1", 100), stats("n2"), stats("n3"))
    assert model.notices == ()
    rows = [row.source for row in model.servers.rows]
    assert [(row["role"], row["lag"], row["restart"]) for row in rows] == [
        ("leader", 0, "yes"),
        ("follower", 10, "yes"),
        ("follower", 10, "yes"),
    ]


def test_one_that_is_down_leaves_no_room_for_another() -> None:
    down = NodeStats("n3", "name-server", "n3:7701", {}, "no answer in 2 s")
    model = page(stats("n1"), stats("n2"), down)
    assert [(each.text, each.tone) for each in model.notices] == [
        ("n3 does not answer: no answer in 2 s", "failed"),
        ("One more name server that fails would stop all changes", "warning"),
    ]
    rows = [row.source for row in model.servers.rows]
    assert rows[0]["restart"] == "no: no majority would remain"
    assert (rows[2]["state"], rows[2]["role"], rows[2]["lag"], rows[2]["restart"]) == (
        "down",
        None,
        None,
        None,
    )


def test_without_a_leader_that_comes_first() -> None:
    model = page(stats("n1", in_touch=0), leader=None)
    assert model.notices[0].tone == "failed"
    assert "no leader" in model.notices[0].text
    assert {row.source["restart"] for row in model.servers.rows} <= {
        None,
        "no: no majority would remain",
    }


def test_a_single_one_is_said() -> None:
    assert "add two more" in page(stats("n1"), members=1).notices[0].text


def test_an_upgrade_is_offered_when_nothing_hinders_it() -> None:
    nodes = [
        NodeVersion("n1", "name-server", "2.0", 1, ""),
        NodeVersion("b1", "broker", "2.0", 1, ""),
    ]
    upgrade = page(stats("n1"), versions=VersionsDescribed(0, 0, 1, nodes)).upgrade
    assert upgrade is not None
    assert (upgrade.level, upgrade.offered, upgrade.may_finalize) == (0, 1, True)
    assert "moves of replicas" in upgrade.brings[0]
    nodes[1] = NodeVersion("b1", "broker", "", 0, "b1 reads level 0 only")
    upgrade = page(stats("n1"), versions=VersionsDescribed(0, 0, 1, nodes)).upgrade
    assert upgrade is not None
    assert (upgrade.may_finalize, upgrade.hinders) == (False, ("b1 reads level 0 only",))
    assert upgrade.nodes.rows[1].source["software"] == "an older release"


def test_at_the_offered_level_nothing_is_to_be_done() -> None:
    nodes = [NodeVersion("n1", "name-server", "2.0", 1, "of no matter")]
    upgrade = page(stats("n1"), versions=VersionsDescribed(0, 1, 1, nodes)).upgrade
    assert upgrade is not None
    assert (upgrade.may_finalize, upgrade.hinders, upgrade.brings) == (False, (), ())
