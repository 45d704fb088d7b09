"""What a run found, as JSON and as one page of HTML with a picture of its course."""

from __future__ import annotations

import html
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from tests.chaos.group_ledger import GroupFigures
from tests.chaos.outages import BAR_S, Event
from tests.chaos.plan import Result
from tests.chaos.subscription_ledger import SubscriptionFigures

WIDTH: Final = 1_200
CURVE: Final = 160
LANE: Final = 14
"""Pixels of height of one fault, or of one queue."""

STYLE: Final = """
body { font: 14px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 1260px; color: #222 }
h1 { font-size: 1.4em } table { border-collapse: collapse; margin: 1em 0 }
td, th { padding: .15em .8em; border-bottom: 1px solid #ddd; text-align: left }
td.n { text-align: right; font-variant-numeric: tabular-nums }
.good { color: #0a6b2d } .bad { color: #b00020 } svg text { font: 11px system-ui, sans-serif }
"""


def as_data(result: Result) -> dict[str, Any]:
    """Everything that the report says."""
    verdict, plan = result.verdict, result.plan
    return {
        "kept": verdict.clean,
        "seed": plan.seed,
        "links": plan.links,
        "seconds": round(result.seconds, 1),
        "machine": platform.platform(),
        "faults": len(result.events),
        "longest_outage_s": result.longest_outage,
        "longest_silence_of_readers_s": result.longest_silence,
        "outage_bar_s": BAR_S,
        "busy_factor": plan.busy,
        "messages": {
            "sent": verdict.sent,
            "acked": verdict.acked,
            "given_up": verdict.failed,
            "stored": verdict.stored,
            "read": verdict.read,
        },
        "group": {
            "delivered": result.group.delivered,
            "again_delivered": result.group.again,
            "failed": result.group.failed,
            "copies_delivered": result.group.copies,
            "dead_letters": result.group.dead,
            "owners_of_queues": result.group.owners,
            "longest_pause_s": result.group.longest_pause,
            "longest_pause_s_by_queue": result.group.pauses,
            "members": result.group.fates,
        },
        "subscriptions": result.subscriptions,
        "broken": dict(verdict.broken),
        "details": verdict.details,
        "nodes_that_ended_by_themselves": result.ended,
        "explained_by_faults": result.explained,
        "stores_set_aside": result.stores_set_aside,
        "messages_kept_aside": result.kept_aside,
        "states_compared": result.states_compared,
        "events": result.events,
        "acks_a_second": result.acks_a_second,
        "reads_a_second": result.reads_a_second,
    }


def write(result: Result, folder: Path) -> tuple[Path, Path]:
    """Write report.json and report.html; their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    data, page = folder / "report.json", folder / "report.html"
    data.write_bytes(msgspec.json.format(msgspec.json.encode(as_data(result))))
    page.write_text(as_page(result), encoding="utf-8")
    return data, page


def as_page(result: Result) -> str:
    """One page without anything from elsewhere."""
    verdict = result.verdict
    word = "every promise was kept" if verdict.clean else "PROMISES WERE BROKEN"
    kind = "good" if verdict.clean else "bad"
    broken = "".join(
        f"<h2 class=bad>{html.escape(name)}: {verdict.broken[name]:,}</h2><ul>"
        + "".join(f"<li>{html.escape(line)}" for line in lines)
        + "</ul>"
        for name, lines in verdict.details.items()
    )
    counts = [
        ("acknowledged", verdict.acked),
        ("given up by a producer", verdict.failed),
        ("stored", verdict.stored),
        ("read, all readers together", verdict.read),
        ("faults", len(result.events)),
        ("nodes that ended by themselves", len(result.ended)),
        ("damaged stores set aside", result.stores_set_aside),
        ("messages of topics that a survivor did not know, kept aside", result.kept_aside),
        ("states that name servers compared (processes of the end)", result.states_compared),
    ]
    rows = "".join(f"<tr><td>{name}<td class=n>{count:,}" for name, count in counts)
    return (
        f"<!doctype html><meta charset=utf-8><title>logboom chaos</title><style>{STYLE}</style>"
        f"<h1>logboom chaos: <span class={kind}>{word}</span></h1>"
        f"<p>seed {result.plan.seed}, {result.plan.links}, {result.seconds / 60:.1f} minutes of load, longest time "
        f"without service of a queue after one fault {result.longest_outage:.2f} s (bar {bar_of(result)}), "
        f"without a message read {result.longest_silence:.2f} s"
        f"{broken}<table>{rows}</table>{_group(result.group)}"
        f"{_subscriptions(result.subscriptions)}{picture(result)}{_table(result)}"
        f"{_list('Nodes that ended by themselves', result.ended)}"
        f"{_list('Ends and logged faults that a fault of the run explains', result.explained)}\n"
    )


def _group(group: GroupFigures) -> str:
    counts = [
        ("delivered to the group", f"{group.delivered:,}"),
        ("of these again", f"{group.again:,}"),
        ("failed at a member", f"{group.failed:,}"),
        ("copies of these delivered", f"{group.copies:,}"),
        ("dead letters", f"{group.dead:,}"),
        ("owners that queues had", f"{group.owners:,}"),
        *((f"members: {what}", f"{times:,}") for what, times in group.fates.items()),
        *(
            (f"longest time without a message of queue {queue} (s)", f"{pause:.2f}")
            for queue, pause in group.pauses.items()
        ),
    ]
    rows = "".join(f"<tr><td>{name}<td class=n>{value}" for name, value in counts)
    return f"<h2>A consumer group meanwhile</h2><table>{rows}</table>"


def _subscriptions(figures: SubscriptionFigures) -> str:
    counts = [
        ("handed to consumers", figures.handed),
        ("of these again", figures.again),
        ("given back", figures.given_back),
        ("confirmed to be acknowledged", figures.confirmed),
        ("consumers killed", figures.killed),
        ("consumers stopped for longer than their session", figures.stopped),
    ]
    rows = "".join(f"<tr><td>{name}<td class=n>{times:,}" for name, times in counts)
    return f"<h2>A shared and a key-shared subscription meanwhile</h2><table>{rows}</table>"


def _list(title: str, lines: Sequence[str]) -> str:
    if not lines:
        return ""
    return f"<h2>{title}</h2><ul>" + "".join(f"<li>{html.escape(line)}" for line in lines) + "</ul>"


def bar_of(result: Result) -> str:
    """The bar of this run, in words."""
    busy = result.plan.busy
    return f"{BAR_S:g} s" if busy == 1 else f"{BAR_S:g} s, {busy:g} times of it on a busy machine"


def _missed(event: Event, result: Result) -> bool:
    return event.bar_s is not None and event.longest > event.bar_s * result.plan.busy


def _table(result: Result) -> str:
    rows = "".join(
        f"<tr><td class=n>{event.struck:.1f}<td class=n>{event.mended:.1f}"
        f"<td>{html.escape(event.name)}<td>{html.escape(event.whom)}"
        f"<td>{'strike' if event.served else 'mending'}"
        f"<td class='n {'bad' if _missed(event, result) else 'good'}'>{event.longest:.2f}"
        f"<td class=n>{'' if event.bar_s is None else event.bar_s * result.plan.busy}"
        f"<td class=n>{event.longest_silence:.2f}"
        for event in result.events
    )
    return (
        "<table><tr><th>struck (s)<th>mended (s)<th>fault<th>whom<th>to be served from"
        f"<th>longest outage (s)<th>bar (s)<th>longest without a message read (s)</tr>{rows}</table>"
    )


def picture(result: Result) -> str:
    """Throughput, faults and outages over time, as SVG."""
    seconds = max(1.0, result.seconds)
    scale = WIDTH / seconds
    names = sorted({event.name for event in result.events})
    top = CURVE + 30
    high = max(1, *result.acks_a_second, *result.reads_a_second)
    parts = [
        _curve(result.reads_a_second, high, scale, "#9bbbe0"),
        _curve(result.acks_a_second, high, scale, "#1a4f8b"),
        f"<text x=4 y=12>messages a second, most {high:,}: acknowledged (dark), read (light)</text>",
    ]
    for event in result.events:
        y = top + names.index(event.name) * LANE
        left, width = event.struck * scale, max(2.0, (event.mended - event.struck) * scale)
        title = f"{event.name}: {event.whom}, outage {event.longest:.2f} s"
        parts.append(
            f"<rect x={left:.1f} y={y} width={width:.1f} height={LANE - 3} fill='#d9822b'>"
            f"<title>{html.escape(title)}</title></rect>"
        )
        begin = (event.struck if event.served else event.mended) * scale
        fill = "#b00020" if _missed(event, result) else "#7a7a7a"
        parts.append(
            f"<rect x={begin:.1f} y={CURVE + 8} width={max(1.0, event.longest * scale):.1f} "
            f"height=8 fill='{fill}'><title>{html.escape(title)}</title></rect>"
        )
    parts += [
        f"<text x=4 y={top + n * LANE + LANE - 5} fill-opacity=.7>{html.escape(name)}</text>"
        for n, name in enumerate(names)
    ]
    bottom = top + len(names) * LANE
    step = max(1, round(seconds / 12))
    parts += [
        f"<text x={at * scale:.0f} y={bottom + 14}>{at} s</text>"
        for at in range(0, int(seconds) + 1, step)
    ]
    return (
        f"<svg viewBox='0 0 {WIDTH} {bottom + 20}' width=100% role=img "
        f"aria-label='course of the run'>{''.join(parts)}</svg>"
    )


def _curve(values: Sequence[int], high: int, scale: float, colour: str) -> str:
    points = " ".join(
        f"{second * scale:.1f},{CURVE - value / high * (CURVE - 20):.1f}"
        for second, value in enumerate(values)
    )
    return f"<polyline fill=none stroke='{colour}' stroke-width=1.2 points='{points}'/>"
