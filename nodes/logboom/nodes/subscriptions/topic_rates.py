"""The dispatch rates of topics, which the subscriptions of a queue share.

Each subscription has a share, with savings and debts of its own. What the time brings is divided
equally among the shares that can save more; one that has saved all it may leaves its part to the
others. So no subscription waits for what others were sent, and nothing is left unused.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from logboom.nodes.replica.replica import QueueKey, Replica
from logboom.nodes.subscriptions.attached_consumer import DispatchRateLimiter
from logboom.wire.routes import Routes


class SharedRate:
    """A limit of messages and bytes per second for several subscriptions.

    All together save at most what one second brings, but each at least one message.
    """

    def __init__(self, messages_per_s: int = 0, bytes_per_s: int = 0) -> None:
        self.messages_per_s = messages_per_s
        self.bytes_per_s = bytes_per_s
        self._shares: dict[str, RateShare] = {}
        self._growing: tuple[int, int] | None = None
        """How many shares can save more messages, and more bytes; None: to be counted."""
        self._at = 0.0

    def share(self, name: str) -> RateShare:
        """Return the share of a subscription; a new one gets what others may not save any more."""
        if name not in self._shares:
            self._shares[name] = RateShare(self)
            self._divide(0, 0)
        return self._shares[name]

    def leave(self, name: str) -> None:
        """Remove the share of a subscription."""
        self._shares.pop(name, None)
        self._growing = None

    def change(self, messages_per_s: int, bytes_per_s: int) -> None:
        """Change the rates, and cancel what is still owed under the old ones."""
        self.messages_per_s, self.bytes_per_s = messages_per_s, bytes_per_s
        for share in self._shares.values():
            share.change(messages_per_s, bytes_per_s)
        self._divide(0, 0)

    def fill(self, now: float) -> None:
        """Divide what the time until `now` has brought."""
        passed = now - self._at
        if passed > 0:
            self._at = now
            # All of the elapsed time counts, as in a limiter of one.
            self._divide(passed * self.messages_per_s, passed * self.bytes_per_s)

    def speeds(self) -> tuple[float, float]:
        """Return the messages and bytes per second of each share that can save more."""
        if self._growing is None:
            most_messages, most_bytes = self._most()
            saved = [share.saved() for share in self._shares.values()]
            self._growing = (
                sum(each < most_messages for each, _ in saved),
                sum(each < most_bytes for _, each in saved),
            )
        messages, size = self._growing
        return self.messages_per_s / max(1, messages), self.bytes_per_s / max(1, size)

    def charged(self, before: tuple[float, float], after: tuple[float, float]) -> None:
        """Note that a share has less saved than before."""
        if self._growing is None:
            return
        messages, size = self._growing
        most_messages, most_bytes = self._most()
        messages += (after[0] < most_messages) - (before[0] < most_messages)
        size += (after[1] < most_bytes) - (before[1] < most_bytes)
        self._growing = messages, size

    def _most(self) -> tuple[float, float]:
        """Return the messages and bytes that one share may save."""
        shares = max(1, len(self._shares))
        return max(1.0, self.messages_per_s / shares), max(1.0, self.bytes_per_s / shares)

    def _divide(self, messages: float, size: float) -> None:
        shares = list(self._shares.values())
        saved = [share.saved() for share in shares]
        most_messages, most_bytes = self._most()
        of_messages = divide([each for each, _ in saved], messages, most_messages)
        of_bytes = divide([each for _, each in saved], size, most_bytes)
        for share, *now_saved in zip(shares, of_messages, of_bytes, strict=True):
            share.save(*now_saved)
        self._growing = None


class RateShare(DispatchRateLimiter):
    """The share of one subscription in a rate."""

    __slots__ = ("_rate",)

    def __init__(self, rate: SharedRate) -> None:
        super().__init__(rate.messages_per_s, rate.bytes_per_s)
        self._rate = rate
        self.save(0.0, 0.0)

    def saved(self) -> tuple[float, float]:
        """Return the messages and bytes that are saved; what is below 0 is owed."""
        return self._messages, self._bytes

    def save(self, messages: float, size: float) -> None:
        """Set what is saved."""
        self._messages, self._bytes = messages, size

    def charge(self, messages: int, size: int) -> None:
        """Charge what was sent."""
        before = self.saved()
        super().charge(messages, size)
        self._rate.charged(before, self.saved())

    def _fill(self, now: float) -> None:
        self._rate.fill(now)

    def _speeds(self) -> tuple[float, float]:
        return self._rate.speeds()


def divide(saved: Sequence[float], amount: float, most: float) -> list[float]:
    """Divide an amount equally among savings of at most `most`, with what some have beyond that."""
    amount += sum(max(0.0, each - most) for each in saved)
    gaps = sorted(most - each for each in saved if each < most)
    part = 0.0
    for number, gap in enumerate(gaps):
        # All that are not full yet get what the fullest one takes, or their part if that is less.
        takers = len(gaps) - number
        if amount <= (gap - part) * takers:
            part += max(0.0, amount) / takers
            break
        amount -= (gap - part) * takers
        part = gap
    # A sum may be rounded to more or less than the most.
    return [most if most - each <= part else min(most, each + part) for each in saved]


class TopicRateLimiters:
    """The dispatch rates of queues."""

    def __init__(self, routes: Routes) -> None:
        self._routes = routes
        self._rates: dict[QueueKey, SharedRate] = {}
        self._known: dict[str, tuple[int, int]] = {}
        """Topic → its rates, as they were learned last; those without a limit are left out."""

    def learned(self, names: Iterable[str]) -> list[str]:
        """Return which of the topics that have changed have other rates than before."""
        found = []
        for name in names:
            topic = self._routes.topics.get(name)
            rates = (0, 0)
            if topic is not None:
                config = topic.config
                rates = config.dispatch_messages_per_s, config.dispatch_bytes_per_s
            if rates != self._known.get(name, (0, 0)):
                self._known[name] = rates
                found.append(name)
            if rates == (0, 0):
                self._known.pop(name, None)
        return found

    def get_limiter(self, replica: Replica, subscription: str) -> DispatchRateLimiter:
        """Return a subscription's share in the rate of a queue, as its topic has it now."""
        rate = self._rates.setdefault(replica.key, SharedRate())
        share = rate.share(subscription)
        self._adopt(replica, rate)
        return share

    def changed(self, replica: Replica) -> bool:
        """Follow the topic's rate, and return whether it has changed."""
        rate = self._rates.get(replica.key)
        return rate is not None and self._adopt(replica, rate)

    def leave(self, key: QueueKey, subscription: str) -> None:
        """Divide a queue's rate among the other subscriptions."""
        self._rates[key].leave(subscription)

    def forget(self, key: QueueKey) -> None:
        """Forget a queue of which no subscription is served any longer."""
        self._rates.pop(key, None)

    def _adopt(self, replica: Replica, rate: SharedRate) -> bool:
        topic = self._routes.topics.get(replica.topic)
        if topic is None:
            return False
        config = topic.config
        wanted = config.dispatch_messages_per_s, config.dispatch_bytes_per_s
        if wanted == (rate.messages_per_s, rate.bytes_per_s):
            return False
        rate.change(*wanted)
        return True
