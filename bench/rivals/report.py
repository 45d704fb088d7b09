"""The report of a run as Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench.rivals.results import (
    LIMITS,
    OWN,
    BurstResult,
    RunReport,
    Setup,
    Spread,
    cpu_spread,
    rate_spread,
    ratio_spread,
    select,
    spread,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from bench.rivals.results import Work

NOTHING: Final = "\N{EN DASH}"
WORKS: Final[tuple[tuple[Work, str], ...]] = (
    ("produce", "Produce in bulk"),
    ("consume", "Consume"),
    ("both", "Produce and consume at once"),
)
LIMIT_TITLES: Final = {
    "raw_rocksdb": "limit: raw RocksDB, synced",
    "raw_disk": "limit: raw disk, synced",
    "memcpy": "limit: memcpy",
}
LIMITS_OF: Final[dict[Work, tuple[str, ...]]] = {
    "produce": LIMITS,
    "consume": ("memcpy",),
    "both": LIMITS,
}
CODEC_TITLES: Final = {"none": "", "lz4": ", LZ4"}


def rate_text(rate: float) -> str:
    """Return messages per second with three digits: 2.35 M, 187 k, 812."""
    for unit, name in ((1e6, " M"), (1e3, " k")):
        if rate >= unit * 0.9995:
            return f"{digits(rate / unit)}{name}"
    return digits(rate)


def digits(value: float) -> str:
    """Return a figure with about three digits."""
    if value >= 99.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"


def spread_text(found: Spread | None, text: Callable[[float], str] = rate_text) -> str:
    """Return a median with its spread: 2.35 M (2.10 M-2.41 M)."""
    if found is None:
        return NOTHING
    if found.count == 1:
        return text(found.median)
    return f"{text(found.median)} ({text(found.least)}{NOTHING}{text(found.greatest)})"


def setup_title(setup: Setup) -> str:
    """Return the title of a column."""
    size = f"{setup.size // 1024} KiB" if setup.size % 1024 == 0 else f"{setup.size} B"
    return size + CODEC_TITLES[setup.codec]


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def setups(results: Iterable[BurstResult], brokers: int) -> list[Setup]:
    """Return what was measured with so many brokers, in order of size, uncompressed first."""
    found = {result.setup for result in results if result.setup.brokers == brokers}
    return sorted(found, key=lambda setup: (setup.size, setup.codec != "none"))


class _Section:
    """The part of a report about one number of brokers."""

    def __init__(self, report: RunReport, brokers: int) -> None:
        self._results = [r for r in report.results if r.setup.brokers == brokers]
        self._setups = setups(self._results, brokers)
        took_part = {result.rival for result in self._results}
        self._titles = {
            each.name: each.title for each in report.competitors if each.name in took_part
        }

    def rates(self, work: Work, title: str) -> str:
        """Return the table of one work's rates."""
        rows = [
            (name, [rate_spread(self._results, rival, work, setup) for setup in self._setups])
            for rival, name in self._titles.items()
        ]
        if work == "produce":
            singly = [rate_spread(self._results, OWN, "singly", setup) for setup in self._setups]
            if any(singly):
                rows.insert(1, (f"{self._titles[OWN]}, `send` one by one", singly))
        for limit in LIMITS_OF[work]:
            found = [rate_spread(self._results, limit, "produce", setup) for setup in self._setups]
            rows.append((f"*{LIMIT_TITLES[limit]}*", found))
        texts = [(name, *map(spread_text, found)) for name, found in rows]
        head = [f"{title}, messages/s", *map(setup_title, self._setups)]
        return table(head, texts)

    def ratios(self) -> str:
        """Return the table of logboom's rates as multiples of the others'."""
        head = ["logboom ÷", *(title for _, title in WORKS)]
        rows = []
        for rival, name in self._titles.items():
            for setup in self._setups:
                found = [ratio_spread(self._results, rival, work, setup) for work, _ in WORKS]
                if rival != OWN and any(found):
                    cells = [spread_text(each, digits) for each in found]
                    rows.append((f"{name}, {setup_title(setup)}", *cells))
        return table(head, rows) if rows else ""

    def cpu(self) -> str:
        """Return the table of processor time."""
        columns = [
            (work, title, s) for work, title in WORKS for s in self._setups if s.codec == "none"
        ]
        head = ["CPU seconds per million messages, servers + clients"]
        head += [f"{title}, {setup_title(setup)}" for _, title, setup in columns]
        rows = [
            (name, *(self._cpu(rival, work, setup) for work, _, setup in columns))
            for rival, name in self._titles.items()
        ]
        return table(head, rows)

    def _cpu(self, rival: str, work: Work, setup: Setup) -> str:
        kinds: tuple[Callable[[BurstResult], float], ...] = (
            lambda result: result.server_cpu_s,
            lambda result: result.client_cpu_s,
        )
        servers, clients = (cpu_spread(self._results, rival, work, setup, kind) for kind in kinds)
        if servers is None or clients is None:
            return NOTHING
        return f"{digits(servers.median)} + {digits(clients.median)}"

    def latency(self) -> str:
        """Return the table of latencies."""
        head = ["1,000 messages/s, ms"]
        head += ["acknowledged p50", "acknowledged p99", "delivered p50", "delivered p99"]
        rows = []
        for rival, name in self._titles.items():
            found = [
                result
                for setup in self._setups
                for result in select(self._results, rival, "latency", setup)
            ]
            if found:
                acknowledged = [r.acknowledged_ms for r in found if r.acknowledged_ms]
                delivered = [r.delivered_ms for r in found if r.delivered_ms]
                cells = [
                    spread_text(spread(pair[at] for pair in pairs), digits)
                    for pairs in (acknowledged, delivered)
                    for at in (0, 1)
                ]
                rows.append((name, *cells))
        return table(head, rows) if rows else ""


def markdown(report: RunReport) -> str:
    """Return the whole report."""
    machine = report.machine
    about = (
        f"Measured on {report.date}: {machine['processor']}, {machine['cores']} cores, "
        f"{machine['memory']}, {machine['system']}, Python {machine['python']}. "
        f"fdatasync of 4 KiB: p50 {machine['fdatasync_p50_ms']} ms, p99 "
        f"{machine['fdatasync_p99_ms']} ms. Medians of {report.rounds} rounds, with the least and the "
        "greatest."
    )
    lines = [about, ""]
    rows = [
        (each.title, each.version, each.durability or NOTHING, _left_out(each.left_out))
        for each in report.competitors
    ]
    lines += [table(["", "version", "an acknowledged message is", "left out"], rows), ""]
    for brokers in sorted({result.setup.brokers for result in report.results}):
        section = _Section(report, brokers)
        lines += [
            f"### {'One broker' if brokers == 1 else f'{brokers} brokers, as many replicas'}",
            "",
        ]
        foreign = report.foreign_cores.get(str(brokers))
        if foreign is not None:
            idle = report.idle_cores.get(str(brokers), {})
            noise = (
                f"Meanwhile other processes and the hypervisor took {foreign:.2f} cores, and the idle "
                f"servers of all rivals together {sum(idle.values()):.2f}."
            )
            lines += [noise, ""]
        tables = [section.rates(work, title) for work, title in WORKS]
        tables += [section.latency(), section.cpu(), section.ratios()]
        lines += [part for each in tables if each for part in (each, "")]
    return "\n".join(lines)


def _left_out(reasons: dict[str, str]) -> str:
    return "; ".join(f"{what}: {why}" for what, why in reasons.items()) or NOTHING
