"""The rules A1 to A6 and A8, and S4 of name servers, taken out of the real code; as `queues.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from logboom.metadata.access import initial_keys
from logboom.metadata.name_server import NameServer
from logboom.metadata.state.proposal_dedup import Dedup
from logboom.metadata.tables.consumer_groups import ConsumerGroupMember
from logboom.metadata.watch.watch_handler import WatchHandler
from logboom.nodes.broker import Broker
from logboom.nodes.groups.member_access import MemberAccess
from logboom.nodes.parking.recall_handler import RecallHandler
from logboom.nodes.requests import produce_handler
from logboom.nodes.rights_review import RightsReview
from logboom.nodes.subscriptions.active_subscription import ConsumerSession
from logboom.wire.acceptor import Acceptor
from logboom.wire.access import access_book
from logboom.wire.access.access_book import AccessBook
from logboom.wire.access.access_rules import principal_of, user_of
from logboom.wire.routes import Routes
from logboom.wire.sight import Sight

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from logboom.wire.acceptor import PeerSession
    from logboom.wire.access.access_rules import ResourceKind, UserView, Verb
    from logboom.wire.actor import Effects, Event, Instant
    from logboom.wire.messages import Watch
    from logboom.wire.view import View
    from tests.sim.breaks.queues import Patch


def the_configuration_counts_against_the_state(patch: Patch) -> None:
    """S4: a name server takes the keys of its configuration for those of nodes that are shut out."""
    patch.setattr(initial_keys, "_is_shut_out", lambda _node, _cluster: False)


def denials_do_not_win(patch: Patch) -> None:
    """A1: a request is allowed as soon as some rule allows it."""
    decide = access_book.decide

    def lenient(
        rules: Iterable[access_book.HeldRule], verb: Verb, kind: ResourceKind, name: str
    ) -> access_book.AccessDecision:
        held = list(rules)
        found = decide((each for each in held if each[1].allow), verb, kind, name)
        return found if found.allowed else decide(held, verb, kind, name)

    patch.setattr(access_book, "decide", lenient)


def the_disabled_are_served_until_they_reconnect(patch: Patch) -> None:
    """A1: who has a connection keeps its rights, whatever becomes of its key and its user."""
    decide = vars(AccessBook)["_decide"]

    def held(self: AccessBook, principal: str) -> bool:
        return user_of(principal) in self.users

    def decided(self: AccessBook, user: str, verb: Verb, kind: ResourceKind, name: str) -> Any:
        known = self.users.get(user)
        if known is None or not known.disabled:
            return decide(self, user, verb, kind, name)
        self.users[user] = msgspec.structs.replace(known, disabled=False)
        found = decide(self, user, verb, kind, name)
        self.users[user] = known
        return found

    patch.setattr(AccessBook, "is_current", held)
    patch.setattr(AccessBook, "_decide", decided)


def what_is_held_is_answered(patch: Patch) -> None:
    """A1: a request that waits is answered by the rules that were there when it came."""
    patch.setattr(Acceptor, "recheck", lambda _self, _address, _message: None)


def what_is_not_checked_yet_is_answered(patch: Patch) -> None:
    """A1: a request that waits is answered before it was checked again, where very many wait."""
    patch.setattr(RightsReview, "allows", lambda _self, _address, _message, _turn: True)


def decisions_are_remembered(patch: Patch) -> None:
    """A1: what was decided once about a user is not decided again when a role of it changes."""
    patch.setattr(AccessBook, "_role_changed", lambda _self, _name: None)


def rules_go_back(patch: Patch) -> None:
    """A2: a node takes over rules that are older than those it has."""
    update, take = Routes.update, WatchHandler.take

    def older(
        self: WatchHandler, peer: PeerSession, message: Watch, out: Effects, now: float
    ) -> None:
        if message.access and vars(self)["_shown"] < message.version:
            message.version = -1
        take(self, peer, message, out, now)

    def back(self: Routes, view: View) -> list[str]:
        if view.access is not None and view.full and view.version < self.version:
            self.access.version = -1
            self.access.update(view.access, view.version)
        return update(self, view)

    patch.setattr(WatchHandler, "take", older)
    patch.setattr(Routes, "update", back)


def names_are_shown_to_all(patch: Patch) -> None:
    """A3: WATCH and lists have every name."""
    patch.setattr(Sight, "topic", lambda _self, _name: True)
    patch.setattr(Sight, "group", lambda _self, _name: True)


def rights_that_change_show_nothing(patch: Patch) -> None:
    """A3: who gets rights, or loses some, goes on with the view of before."""
    patch.setattr(Sight, "changed_after", lambda _self, _version: False)


def keys_end_by_the_nodes_clocks(patch: Patch) -> None:
    """A4: each node ends keys by its own clock."""
    for kind in (NameServer, Broker):
        patch.setattr(kind, "handle", _timed(kind.handle))
    learn, known = vars(AccessBook)["_learn"], AccessBook.is_current

    def learned(self: AccessBook, user: UserView) -> None:
        learn(self, user)
        for key in user.keys:
            _ENDS[principal_of(user.name, key)] = key.end_ms

    def current(self: AccessBook, principal: str) -> bool:
        end_ms = _ENDS.get(principal, 0)
        return known(self, principal) and not 0 < end_ms <= _CLOCK[0]

    patch.setattr(AccessBook, "_learn", learned)
    patch.setattr(AccessBook, "is_current", current)


def the_oldest_result_of_all_goes(patch: Patch) -> None:
    """A5: the oldest result goes, whoever has filled the table."""
    patch.setattr(Dedup, "_oldest_of_most", lambda self: next(iter(self.windows)))


def producer_ids_are_anybodys(patch: Patch) -> None:
    """A6: whoever may write to a topic sends there with any producer id."""
    patch.setattr(produce_handler, "is_id_of_user", lambda _user, _producer_id: True)


def consumers_are_anybodys(patch: Patch) -> None:
    """A6: whoever knows a consumer of a subscription and its session speaks for it."""

    def of_all(self: ConsumerSession, _user: str, session: int) -> bool:
        return session == self.session

    patch.setattr(ConsumerSession, "is_of", of_all)


def members_are_anybodys(patch: Patch) -> None:
    """A6: whoever knows a member of a group and its epoch speaks for it."""
    patch.setattr(MemberAccess, "foreign", lambda _self, _peer, _message: None)


def names_of_members_are_anybodys(patch: Patch) -> None:
    """A6: a member of any user takes the place of one of its name."""
    patch.setattr(ConsumerGroupMember, "is_anothers", lambda _self, _user: False)


def recalls_are_anybodys(patch: Patch) -> None:
    """A6: whoever may write to a topic takes back what others have sent there for later."""
    patch.setattr(RecallHandler, "_check_sender", lambda _self, *_of: None)


def readers_use_all_subscriptions(patch: Patch) -> None:
    """A8: whoever may read a topic uses, moves and ends all of its subscriptions."""
    rights_behind = access_book.rights_behind

    def by_topic(*right: Any, **_level: bool) -> Sequence[access_book.Right]:
        return rights_behind(*right, subscriptions=False)

    patch.setattr(access_book, "rights_behind", by_topic)


def decisions_outlive_the_upgrade(patch: Patch) -> None:
    """A8: what was decided once on a subscription is not decided again when rules on these come."""

    def enforced(self: AccessBook, version: int) -> None:
        if self.subscriptions_at is None:
            self.subscriptions_at = version
            self.changes += 1

    patch.setattr(AccessBook, "enforce_subscription_rules", enforced)


_CLOCK = [0]
"""The wall clock of the node whose turn it is."""
_ENDS: dict[str, int] = {}


def _timed(handle: Any) -> Any:
    def timed(self: Any, events: Sequence[Event], now: Instant) -> Effects:
        _CLOCK[0] = now.wall_ms
        effects: Effects = handle(self, events, now)
        return effects

    return timed
