"""One run: a cluster under load, faults one after the other, and the verdict."""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from typing import Final

import msgspec

from logboom.client import connect
from logboom.deploy.node_client import NodeClient
from logboom.wire.errors import StartError
from logboom.wire.view import View
from tests.chaos.account import COMPARED, METADATA, judge_states
from tests.chaos.backups import restore
from tests.chaos.bulk import load_bulk
from tests.chaos.crew import Crew
from tests.chaos.disk import ROOM_BYTES
from tests.chaos.group_ledger import GroupFigures, judge_group
from tests.chaos.group_member import ATTEMPTS
from tests.chaos.ledger import Verdict, judge
from tests.chaos.links import ProxyLinks
from tests.chaos.namespaces import NamespaceLinks
from tests.chaos.outages import judge_outages, with_outages
from tests.chaos.plan import Plan, Result
from tests.chaos.record import Acked, Read, Record, load
from tests.chaos.replicas import stored
from tests.chaos.rig import TOPIC, WHOLE_S, Rig
from tests.chaos.squad import Squad
from tests.chaos.subscriber import TYPES
from tests.chaos.subscription_ledger import SubscriptionFigures, judge_subscriptions
from tests.chaos.weather import Weather
from tests.chaos.workers import PRODUCERS, READERS, THREADS, Workers

WARM_UP_S: Final = 1.0
HEALS: Final = "a cluster whose faults are over becomes whole"
LEVEL_S: Final = 20.0
"""Name servers that have not heard of everything by then do not follow."""


def run(plan: Plan) -> Result:
    """Do it.

    Raises:
        StartError: the cluster does not become whole again.
    """
    verdict = Verdict()
    links = NamespaceLinks() if plan.links == NamespaceLinks.kind else ProxyLinks()
    # A run of each fault once is short: disks are soon read, and soon full.
    scrub_every_s, room = (4.0, ROOM_BYTES) if plan.seconds else (0.5, ROOM_BYTES // 8)
    with Rig(
        plan.folder / "cluster", plan.queues, links, scrub_every_s=scrub_every_s, room=room
    ) as rig:
        plan.records.mkdir(parents=True)
        workers, crew, squad = Workers(plan, rig), Crew(plan, rig), Squad(plan, rig)
        try:
            producers = [f"p{n}" for n in range(PRODUCERS)]
            for name in producers:
                workers.start("producer", name, THREADS)
            workers.start("reader", "r", READERS)
            workers.wait_ready()
            crew.begin()
            squad.begin()
            weather = Weather(plan, rig)
            rig.sleep(WARM_UP_S)
            try:
                weather.blow()
            except StartError as error:
                verdict.found(HEALS, f"{error}; counters: {rig.health.counters()}")
            healed = time.monotonic()
            seconds = healed - weather.began
            crew.rest()
            squad.rest()
            workers.end(producers, "", verdict)
            ends = _ends(rig)
            workers.end(["r"], json.dumps(ends), verdict)
            # Everything can be read from the first offset on, also by who comes late.
            workers.start("reader", "late", 1)
            workers.end(["late"], json.dumps(ends), verdict)
            crew.finish(ends, verdict)
            squad.finish(verdict)
        finally:
            workers.kill()
            crew.kill()
            squad.kill()
        try:
            rig.wait_whole()
            if plan.bulk:
                load_bulk(plan, rig, verdict)
            rig.wait_scrubbed()
        except StartError as error:
            verdict.found(HEALS, str(error))
        compared = _metadata(plan, rig, verdict)
        topic = rig.topic()
        rig.stop()
        # Last words count too.
        explained = rig.account.judge(verdict)
        replicas = [queue.replicas for queue in topic.queues]
        held = stored(rig.folders(), topic.id, replicas, verdict)
    records = load(plan.records)
    judge(records, held, _shares(plan), verdict, healed)
    if rig.backed_up_at is not None:
        restore(plan, records, held, rig.backed_up_at, verdict)
    span = (weather.began, weather.began + seconds)
    group = judge_group(records, held, span, verdict, ATTEMPTS, rig.losses)
    subscriptions = judge_subscriptions(records, held, TYPES, verdict)
    return _result(
        plan, rig, weather, seconds, records, verdict, group, subscriptions, explained, compared
    )


def _ends(rig: Rig) -> dict[int, int]:
    """The end offset of each queue."""
    with connect(rig.endpoints, timeout_s=WHOLE_S) as boom:
        ends = boom.admin.offsets(TOPIC)
    return {queue: end for queue, (_, end) in ends.items()}


def _shares(plan: Plan) -> dict[str, set[int]]:
    """Which reader has to have read which queues (as `worker` deals them out)."""
    everything = set(range(plan.queues))
    shares = {"r-0": everything, "late-0": everything}
    others = READERS - 1
    return shares | {f"r-{n + 1}": set(range(n, plan.queues, others)) for n in range(others)}


def _metadata(plan: Plan, rig: Rig, verdict: Verdict) -> int:
    """P12: the name servers hold the same state at the same index, and answer alike.

    Returns how many states the processes that run now have compared. Their logs tell of every one
    that differed, also of the processes that are gone (`tests.chaos.account`).
    """
    counters: dict[str, Counter[str]] = {}

    def compared() -> int:
        counters.update(rig.health.counters())
        return sum(each[COMPARED] for each in counters.values())

    rig.wait(lambda: compared() > 0, LEVEL_S * plan.busy)
    judge_states(counters, verdict)
    endpoints = [rig.cluster.endpoint(name) for name in rig.servers]
    views: dict[str, View] = {}

    def level() -> bool:
        with NodeClient() as asker:
            views.update(asker.views(endpoints, 1.0))
        return len(views) == len(endpoints) and len({v.version for v in views.values()}) == 1

    if not rig.wait(level, LEVEL_S * plan.busy):
        verdict.found(METADATA, f"versions {[view.version for view in views.values()]}")
        return compared()
    # Who leads them is a guess of each.
    alike = [msgspec.structs.replace(view, raft_leader=None) for view in views.values()]
    if any(view != alike[0] for view in alike):
        verdict.found(METADATA, f"at version {alike[0].version}: {alike}")
    return compared()


def _result(
    plan: Plan,
    rig: Rig,
    weather: Weather,
    seconds: float,
    records: list[Record],
    verdict: Verdict,
    group: GroupFigures,
    subscriptions: SubscriptionFigures,
    explained: list[str],
    compared: int,
) -> Result:
    times: dict[type[Record], defaultdict[int, list[float]]] = {
        Acked: defaultdict(list),
        Read: defaultdict(list),
    }
    rates: dict[type[Record], Counter[int]] = {Acked: Counter(), Read: Counter()}
    for record in records:
        if isinstance(record, Acked | Read):
            at = record.at - weather.began
            rates[type(record)][int(at)] += record.count
            times[type(record)][record.queue].append(at)
    acks, reads = (
        {queue: sorted(times[kind][queue]) for queue in range(plan.queues)}
        for kind in (Acked, Read)
    )
    events = list(weather.events)
    if events:
        last = events[-1]
        events[-1] = msgspec.structs.replace(last, ended=seconds)
    events = [with_outages(event, acks, reads) for event in events]
    judge_outages(events, plan.busy, verdict)
    return Result(
        plan,
        verdict,
        events,
        seconds,
        [rates[Acked][second] for second in range(int(seconds) + 1)],
        [rates[Read][second] for second in range(int(seconds) + 1)],
        group,
        subscriptions,
        list(dict.fromkeys(end.words for end in rig.account.ended)),
        explained,
        rig.set_aside,
        rig.kept_aside,
        compared,
    )
