"""Elections after which messages may be missing, and the positions that they cut (SAFETY Q15)."""

from __future__ import annotations

from logboom.metadata.state.state_counters import figures_of
from logboom.metadata.state.state_snapshot import decode_snapshot
from logboom.metadata.tables.cluster_state import MAX_LOSSES
from logboom.wire.commands import (
    AlterTopic,
    CreateTopic,
    DeleteTopic,
    ElectLeader,
    LossEnd,
    RemoveBroker,
    ReportLosses,
)
from logboom.wire.view import QueueLoss, TopicConfig
from tests.unit.metadata.groups.tables import END, GroupTables

ACCEPTED = TopicConfig(min_in_sync=1, unclean_election=True)


class LossTables(GroupTables):
    """Brokers a, b, c; topic t with one queue and one replica, of which m1 in g has committed all."""

    def __init__(self, replicas: int = 1, features: int = 1) -> None:
        super().__init__(queues=1)
        self.done(DeleteTopic("t", 0))
        self.state.cluster.features = features
        self.done(CreateTopic("t", 1, replicas, TopicConfig(min_in_sync=1), 0))
        self.join("m1")
        self.settle()
        assert self.commit("m1", self.last(self.key(0), END)) == [""]

    @property
    def leader(self) -> str:
        """The leader of t."""
        found = self.queue().standing.leader
        assert found is not None
        return found

    @property
    def losses(self) -> list[QueueLoss]:
        """What is told of the losses of t."""
        cluster = self.state.cluster
        return cluster.topic_view(cluster.topics["t"]).queues[0].losses

    def replace_disk(self) -> None:
        """The broker of the only replica comes back with an empty disk."""
        broker = self.leader
        self.fence(broker)
        self.register(broker, f"disk {self.incarnations}")

    def accept(self) -> None:
        """An operator accepts what is lost."""
        self.done(AlterTopic("t", None, ACCEPTED, 0))

    def report(self, end: int, broker: str = "", epoch: int = 0) -> None:
        """The leader reports where the new history begins."""
        broker = broker or self.leader
        ends = [LossEnd(self.queue().topic.id, 0, epoch or self.losses[-1].epoch, end)]
        self.done(ReportLosses(broker, self.epochs[broker], ends, 0))

    def position(self) -> tuple[int, int]:
        """What g has committed, and the end that it has seen."""
        topic = self.group.topics[self.key(0)[0]]
        return topic.committed[0], topic.seen_ends[0]


def test_q15_a_replaced_disk_that_leads_by_an_operator_s_word_cuts_the_commits() -> None:
    tables = LossTables()
    tables.replace_disk()
    assert tables.queue().standing.leader is None
    assert tables.losses == [], "nobody leads, so nothing is lost yet"
    tables.told()
    tables.accept()
    epoch = tables.queue().epoch
    assert tables.losses == [QueueLoss(epoch, -1, 0)]
    assert figures_of(tables.state)["unclean_elections"] == 1
    assert "unclean_election" in [each.event for each in tables.told()]
    tables.report(0)
    assert tables.losses == [QueueLoss(epoch, 0, 0)]
    assert tables.position() == (0, 0)
    told = next(each for each in tables.told() if each.event == "positions_cut")
    assert (told.fields["end"], told.fields["groups"]) == (0, 1)


def test_q15_the_same_where_the_topic_allowed_it_before() -> None:
    tables = LossTables()
    tables.accept()
    tables.told()
    tables.replace_disk()
    assert tables.losses == [QueueLoss(tables.queue().epoch, -1, 0)]
    assert figures_of(tables.state)["unclean_elections"] == 1
    assert "unclean_election" in [each.event for each in tables.told()]
    tables.report(0)
    assert tables.position() == (0, 0)


def test_q15_a_shorter_replica_cuts_to_its_end() -> None:
    tables = LossTables(replicas=3)
    first, second, _ = tables.queue().standing.replicas
    assert tables.leader == first
    assert tables.change_isr(first) == ""
    tables.accept()
    tables.fence(first)
    assert tables.leader == second
    tables.report(900)
    assert tables.position() == (900, 900)
    tables.report(0)
    assert tables.position() == (900, 900), "only the first report counts"


def test_q15_what_a_member_holds_is_not_committed_any_more() -> None:
    tables = LossTables()
    tables.accept()
    last = tables.last(tables.key(0), END)
    tables.replace_disk()
    tables.report(END + 100)
    assert tables.position()[0] == END, "a commit that is not beyond the end stays"
    assert tables.commit("m1", last) == ["STALE_EPOCH"]
    assert tables.commit("m1", tables.last(tables.key(0), END)) == [""]


def test_q15_a_suspect_that_leads_alone_may_lack_messages() -> None:
    tables = LossTables()
    broker = tables.leader
    tables.fence(broker)
    tables.register(broker, suspect=True)
    assert tables.leader == broker
    assert len(tables.losses) == 1
    assert figures_of(tables.state)["unclean_elections"] == 1
    tables.report(990)
    assert tables.position() == (990, 990)


def test_q15_a_clean_election_is_no_loss() -> None:
    tables = LossTables(replicas=3)
    for broker in (*tables.queue().standing.replicas, *tables.queue().standing.replicas):
        tables.fence(broker)
        tables.register(broker)
    assert tables.losses == []
    alone = LossTables()
    alone.accept()
    broker = alone.leader
    alone.fence(broker)
    alone.register(broker)
    assert alone.leader == broker
    assert alone.losses == []


def test_q15_the_right_disk_that_comes_back_is_no_loss() -> None:
    tables = LossTables()
    broker = tables.leader
    store = tables.state.cluster.brokers[broker].store_id
    tables.replace_disk()
    tables.told()
    tables.register(broker, store)
    assert tables.leader == broker
    assert tables.losses == []
    assert "unclean_election" not in [each.event for each in tables.told()]


def test_q15_a_leader_that_an_operator_forces_may_lack_messages() -> None:
    tables = LossTables()
    broker = tables.leader
    tables.replace_disk()
    tables.done(ElectLeader("t", 0, broker, 0))
    assert tables.leader == broker
    assert len(tables.losses) == 1


def test_q15_a_broker_that_is_given_up_with_its_only_replica() -> None:
    tables = LossTables()
    broker = tables.leader
    tables.fence(broker)
    tables.done(RemoveBroker(broker, accept_loss=True))
    assert tables.leader != broker
    tables.report(0)
    assert tables.position() == (0, 0)


def test_q15_a_broker_that_is_given_up_while_the_heir_is_down() -> None:
    tables = LossTables(replicas=2)
    first, second = tables.queue().standing.replicas
    assert tables.change_isr(first) == ""
    tables.fence(second)
    tables.fence(first)
    tables.done(RemoveBroker(first, accept_loss=True))
    assert tables.queue().standing.leader is None
    tables.register(second)
    assert tables.leader == second
    assert tables.losses[-1].epoch == tables.queue().epoch
    tables.report(800)
    assert tables.position() == (800, 800)


def test_q15_only_the_leader_reports_and_only_what_is_pending() -> None:
    tables = LossTables()
    tables.accept()
    tables.replace_disk()
    other = next(broker for broker in "abc" if broker != tables.leader)
    tables.report(0, broker=other)
    tables.report(0, epoch=tables.queue().epoch + 7)
    tables.report(-1)
    assert tables.position() == (END, END)
    assert tables.losses[-1].end == -1


def test_q15_the_last_losses_are_remembered() -> None:
    tables = LossTables()
    tables.accept()
    for _ in range(MAX_LOSSES + 3):
        tables.replace_disk()
        tables.report(0)
    assert len(tables.losses) == MAX_LOSSES
    assert tables.losses[-1].epoch == tables.queue().epoch
    restored, _ = decode_snapshot(tables.state.snapshot())
    assert restored.losses == tables.state.cluster.losses
    tables.done(DeleteTopic("t", 0))
    assert tables.state.cluster.losses == {}


def test_q15_older_name_servers_know_of_no_loss() -> None:
    tables = LossTables(features=0)
    tables.accept()
    tables.replace_disk()
    assert tables.losses == []
