"""The filter of a subscription, and the operator's dispatch plug-ins.

Messages are filtered in Pulsar's order, and each decision is counted: damaged → control → not due →
already acknowledged → plug-ins → tags and properties. A damaged message (stored as its producer
sent it, and unreadable for everyone) and a rejected one count as acknowledged, so that neither
holds back the subscription's floor.

The broker's setting `dispatch_filters` names the plug-ins as `package.module:function`. They are
loaded from Python's module path when the broker starts, and called in this order with the topic,
the subscription and the batch:

    def judge(topic: str, subscription: str, entry: Entry) -> Said: ...

"accept" delivers the batch, "reject" counts it as acknowledged, and "reschedule" asks again a
second later. A plug-in that raises anything or returns anything else is counted
(`dispatch_plug_in_errors`) and asked again too.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from logboom.nodes.replica.batch_match import BatchMatch, MatchQueue
from logboom.nodes.subscriptions.dispatch_events import Entry
from logboom.wire.actor import Note, note
from logboom.wire.errors import DamagedBatch, StartError, describe_exception
from logboom.wire.filters import Matcher, ScanBudget, read_matcher
from logboom.wire.head import ControlKind
from logboom.wire.stats import Statistics

Said: TypeAlias = Literal["accept", "reject", "reschedule"]
PlugIn: TypeAlias = Callable[[Entry], Said]
"""Decides about a whole batch: deliver it, count it as acknowledged, or ask again later."""
DispatchFilter: TypeAlias = Callable[[str, str, Entry], Said]
"""A plug-in as the operator writes it: topic, subscription and batch → decision."""

UNLIMITED: Final = 1 << 62
_SETTING: Final = "dispatch_filters"


class FilterResult(NamedTuple):
    """The decisions on the messages of one batch, as disjoint sets of bits."""

    deliver: int = 0
    acked: int = 0
    later: int = 0


_NOTHING: Final = FilterResult()
_READING: Final = 20
"""Units of reading an entry of which nothing is delivered, beside one for each 4 KiB."""


class EntryFilter:
    """The filter of one subscription."""

    def __init__(
        self,
        text: str = "",
        plug_ins: Sequence[PlugIn] = (),
        stats: Statistics | None = None,
        notes: list[Note] | None = None,
        queue: MatchQueue | None = None,
    ) -> None:
        """Create a filter, which puts the faults of plug-ins into `notes`.

        Large batches are evaluated in `queue`, which all filters of a broker share.

        Raises:
            InvalidFilter, InvalidRequest: `text` cannot be parsed.
        """
        wanted, matcher = read_matcher(text or "*")
        self._matcher = None if wanted.takes_all else matcher
        self._plug_ins = tuple(plug_ins)
        self.stats = Statistics() if stats is None else stats
        self._notes = [] if notes is None else notes
        self.budget = ScanBudget(UNLIMITED)
        """What the entries of this event may still cost, set by the dispatcher."""
        self._partial: BatchMatch | None = None
        """The batch for which the budget was not enough, or that is dealt in pieces."""
        self._queue = MatchQueue() if queue is None else queue

    def judge(self, entry: Entry, missing: int, *, damaged: bool = False) -> FilterResult | None:
        """Decide about the unacknowledged messages (`missing`, as bits) of an entry.

        None means that the budget is used up: judge the same entry again with a new one.

        `damaged` says that the dispatcher needs the columns and cannot read them.
        """
        head = entry.head
        if self.budget.spent:
            return None
        if damaged or head.kind == ControlKind.LOST:
            self.stats.count("dispatch_damaged", missing.bit_count())
            return FilterResult(acked=missing)
        if head.is_control:
            self._charge(entry)
            due = head.kind != ControlKind.PARKED
            self.stats.count("dispatch_control" if due else "dispatch_not_due")
            return _NOTHING
        if not missing:
            self._charge(entry)
            self.stats.count("dispatch_acked_already", head.count)
            return _NOTHING
        said = self._ask(entry)
        if said == "reject":
            self.stats.count("dispatch_rejected", missing.bit_count())
            return FilterResult(acked=missing)
        if said == "reschedule":
            self.stats.count("dispatch_rescheduled", missing.bit_count())
            return FilterResult(later=missing)
        return self._match(entry, missing)

    def _ask(self, entry: Entry) -> Said:
        for plug_in in self._plug_ins:
            try:
                said: Any = plug_in(entry)
                if said == "accept":
                    continue
                if said in ("reject", "reschedule"):
                    decided: Said = said
                    return decided
                error = f"it said {said!r}"
            # Whatever it raises, nothing may be lost, and the broker goes on. What it returns is its
            # code too.
            except BaseException as fault:  # noqa: BLE001 - a plug-in may raise anything; it is logged and counted
                error = describe_exception(fault)
            self.stats.count("dispatch_plug_in_errors")
            self._complain(plug_in, entry, error)
            return "reschedule"
        return "accept"

    def _complain(self, plug_in: PlugIn, entry: Entry, error: str) -> None:
        function = getattr(plug_in, "func", plug_in)
        name = getattr(function, "__qualname__", repr(function))
        self._notes.append(note("filter_failed", filter=name, offset=entry.base, error=error))

    def _charge(self, entry: Entry) -> None:
        """Charge an entry that is passed over: nobody's permits bound how many these are."""
        self.budget.left -= _READING + (entry.size >> 12)

    def _match(self, entry: Entry, missing: int) -> FilterResult | None:
        matcher = self._matcher
        if matcher is None:
            return FilterResult(deliver=missing)
        self._charge(entry)
        self.budget.left -= matcher.guess_cost
        try:
            passed = self._passed(entry, matcher)
        except DamagedBatch:
            self.stats.count("dispatch_damaged", missing.bit_count())
            return FilterResult(acked=missing)
        if passed is None:
            return None
        rest = missing & ~passed
        self.stats.count("dispatch_filtered", rest.bit_count())
        return FilterResult(missing & passed, rest)

    def _passed(self, entry: Entry, matcher: Matcher) -> int | None:
        """Return the messages that match, as bits; None: the budget is used up before the last."""
        if not matcher.may_match(entry.head):
            return 0
        match, self._partial = self._partial, None
        if match is None or match.head != entry.head:
            match = BatchMatch(matcher, entry.head, bytes(entry.frame))
        whole = self._queue.advance(match, self.budget)
        self._partial = match
        return match.bits if whole else None


def load(names: Sequence[str]) -> tuple[DispatchFilter, ...]:
    """Load the plug-ins of these names.

    Raises:
        StartError: BAD_CONFIG, a plug-in does not exist or cannot be imported.
    """
    return tuple(_load(name) for name in names)


def _load(name: str) -> DispatchFilter:
    module_name, _, function = name.partition(":")
    if not module_name or not function.isidentifier():
        raise _bad(name, "write package.module:function")
    try:
        module = importlib.import_module(module_name)
    except KeyboardInterrupt:
        raise  # The operator's.
    # Foreign code may raise anything. It is reported in one line, and the node ends.
    except BaseException as error:
        text = f"module {module_name!r} cannot be imported: {describe_exception(error)}"
        raise _bad(name, text) from error
    found: Any = getattr(module, function, None)
    if not callable(found):
        raise _bad(name, f"module {module_name!r} has no function {function!r}")
    judge: DispatchFilter = found
    return judge


def _bad(name: str, why: str) -> StartError:
    return StartError(f"{_SETTING}: {name!r}: {why}", "BAD_CONFIG")
