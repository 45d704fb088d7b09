"""The rule A7 taken out of the real code; as `queues.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logboom.metadata import name_server
from logboom.nodes.replication.replicate_handler import ReplicateHandler
from logboom.wire import authorizer
from logboom.wire.access.access_rules import is_node_user
from logboom.wire.authorizer import Authorizer

if TYPE_CHECKING:
    from logboom.nodes.replica.replica import Replica
    from logboom.nodes.turn import BrokerTurn
    from logboom.wire.hello import PeerKind
    from tests.sim.breaks.queues import Patch


def nodes_send_everything(patch: Patch) -> None:
    """A7: a node that has proved both keys may send everything."""
    patch.setattr(authorizer, "_node_refusal", lambda *_: None)


def nodes_are_of_any_kind(patch: Patch) -> None:
    """A7: a broker is welcome as a name server, and a name server as a broker."""
    patch.setattr(Authorizer, "is_node_of", lambda *_: True)


def the_raft_listener_takes_all_keys(patch: Patch) -> None:
    """A7: the listener for name servers takes the keys of users."""
    known = Authorizer.is_node_of

    def of(self: Authorizer, user: str, kind: PeerKind) -> bool:
        return not is_node_user(user) or known(self, user, kind)

    patch.setattr(Authorizer, "is_node_of", of)


def claims_of_brokers_are_believed(patch: Patch) -> None:
    """A7: brokers propose commands about queues and groups of others."""
    patch.setattr(name_server, "refuse_claim", lambda *_: None)


def removed_replicas_are_served_on(patch: Patch) -> None:
    """A7: a replica that was removed within an epoch is served as before."""
    compare = ReplicateHandler.role_changed

    def changed(self: ReplicateHandler, replica: Replica, turn: BrokerTurn) -> None:
        known = [each.fetches.get(replica.key) for each in vars(self)["_followers"].values()]
        leading = replica.leading
        if leading is None or all(
            each is None or each.asked.leader_epoch != leading.epoch for each in known
        ):
            compare(self, replica, turn)

    patch.setattr(ReplicateHandler, "role_changed", changed)
