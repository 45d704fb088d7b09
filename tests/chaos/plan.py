"""What a run is to do, and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.group_ledger import GroupFigures
from tests.chaos.ledger import Verdict
from tests.chaos.links import ProxyLinks
from tests.chaos.outages import Event
from tests.chaos.subscription_ledger import SubscriptionFigures


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do."""

    seed: int
    seconds: float
    """How long to go on; each fault strikes once in any case, in the order given."""
    faults: Sequence[str]
    rate: float
    """Messages per second, all producers together."""
    folder: Path
    links: str = ProxyLinks.kind
    queues: int = 6
    members: int = 4
    """Members of the group that consumes meanwhile."""
    session_ms: int = 8_000
    """A member that is not heard for so long is out; longer than what a fault lasts."""
    bulk: int = 30_000
    """Messages of the bulk load at the end, of 2 KB each; 0: there is none."""
    busy: float = 1.0
    """A machine that does other work may take so many times what is promised after one fault."""
    say: Callable[[str], None] = lambda line: None

    @property
    def records(self) -> Path:
        """Where clients write down what they see."""
        return self.folder / "records"

    @property
    def backups(self) -> Path:
        """Where backups of the cluster lie."""
        return self.folder / "backups"


@dataclass(slots=True)
class Result:
    """What came of it."""

    plan: Plan
    verdict: Verdict
    events: list[Event]
    seconds: float
    """Of load."""
    acks_a_second: list[int]
    reads_a_second: list[int]
    group: GroupFigures
    subscriptions: SubscriptionFigures
    ended: list[str] = field(default_factory=list)
    """Nodes that ended by themselves and were started again, with their last words."""
    explained: list[str] = field(default_factory=list)
    """Ends and faulty lines of logs that a fault of the run explains; the others are findings."""
    stores_set_aside: int = 0
    kept_aside: int = 0
    """Acknowledged messages of topics that a recovered name server did not know: not lost, and of no
    topic any more."""
    states_compared: int = 0
    """By the name servers' processes of the end, with their leader's."""

    @property
    def longest_outage(self) -> float:
        """Of one queue, after one fault; faults that struck together are left out."""
        return max((event.longest for event in self._single), default=0.0)

    @property
    def longest_silence(self) -> float:
        """The same of readers."""
        return max((event.longest_silence for event in self._single), default=0.0)

    @property
    def _single(self) -> list[Event]:
        return [event for event in self.events if event.bar_s is not None]
