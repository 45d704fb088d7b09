"""The report of the rivals: tables in Markdown and plots in SVG."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import msgspec
import pytest

from bench.rivals.plots import plots
from bench.rivals.report import markdown, rate_text, spread_text
from bench.rivals.results import BurstResult, Competitor, RunReport, Setup, Spread

DASH = "\N{EN DASH}"
ONE = Setup(1, 100, "none")
PACKED = Setup(1, 1024, "lz4")


@pytest.fixture(name="report")
def small_report() -> RunReport:
    """Two rounds of logboom and Kafka; NATS is missing."""
    machine = {
        "processor": "a processor",
        "cores": "2",
        "memory": "24 GiB",
        "system": "Linux",
        "python": "3.11",
        "fdatasync_p50_ms": "0.15",
        "fdatasync_p99_ms": "0.40",
    }
    competitors = [
        Competitor("logboom", "logboom", "0.1.0", "on disk"),
        Competitor("kafka", "Kafka", "4.1.1", "on disk too"),
        Competitor("nats", "NATS", left_out={"all": "nats-server is not installed: apt-get <it>"}),
    ]
    results = []
    for number, factor in ((1, 1), (2, 3)):
        results += [
            BurstResult("logboom", "produce", ONE, number, 2_000_000 * factor, 1.0, 0.5, 0.25),
            BurstResult("logboom", "singly", ONE, number, 500_000, 1.0),
            BurstResult("kafka", "produce", ONE, number, 1_000_000 * factor, 1.0, 3.0, 1.0),
            BurstResult("logboom", "consume", PACKED, number, 40_000, 1.0),
            BurstResult("raw_disk", "produce", ONE, number, 9_000_000, 1.0),
            BurstResult("memcpy", "produce", PACKED, number, 70_000_000, 1.0),
            BurstResult(
                "kafka", "latency", ONE, number, 1_000, 1.0, 0.0, 0.0, (0.5, 2.0), (0.75, factor)
            ),
        ]
    return RunReport(
        "2026-11-23", machine, 2, competitors, results, {"1": {"kafka": 0.05}}, {"1": 0.1}
    )


def test_figures_have_three_digits() -> None:
    texts = {
        2_345_678: "2.35 M",
        12_345_678: "12.3 M",
        999_700: "1.00 M",
        187_400: "187 k",
        99_960: "100 k",
        812.4: "812",
        0.3: "0.30",
    }
    assert {figure: rate_text(figure) for figure in texts} == texts


def test_a_spread_of_one_round_is_a_figure() -> None:
    assert spread_text(Spread(2e6, 1e6, 3e6, 5)) == f"2.00 M (1.00 M{DASH}3.00 M)"
    assert spread_text(Spread(2e6, 2e6, 2e6, 1)) == "2.00 M"
    assert spread_text(None) == DASH


def test_the_tables_say_what_was_measured(report: RunReport) -> None:
    lines = markdown(report).splitlines()
    each = ("0.50", "0.50"), ("2.00", "2.00"), ("0.75", "0.75")
    latencies = " | ".join(f"{least} ({least}{DASH}{most})" for least, most in each)
    latencies += f" | 2.00 (1.00{DASH}3.00)"
    expected = [
        "| NATS |  | \N{EN DASH} | all: nats-server is not installed: apt-get <it> |",
        "| Produce in bulk, messages/s | 100 B | 1 KiB, LZ4 |",
        f"| logboom | 4.00 M (2.00 M{DASH}6.00 M) | {DASH} |",
        f"| logboom, `send` one by one | 500 k (500 k{DASH}500 k) | {DASH} |",
        f"| Kafka | 2.00 M (1.00 M{DASH}3.00 M) | {DASH} |",
        f"| *limit: raw disk, synced* | 9.00 M (9.00 M{DASH}9.00 M) | {DASH} |",
        f"| *limit: memcpy* | {DASH} | 70.0 M (70.0 M{DASH}70.0 M) |",
        f"| Kafka | {latencies} |",
        f"| Kafka, 100 B | 2.00 (2.00{DASH}2.00) | {DASH} | {DASH} |",
    ]
    assert [line for line in expected if line not in lines] == []
    (cpu,) = [line for line in lines if line.startswith("| Kafka | 2.00 + 0.67 |")]
    assert cpu.count("+") == 1
    assert "others took" not in markdown(report)
    assert any(
        "took 0.10 cores, and the idle servers of all rivals together 0.05" in x for x in lines
    )


def test_every_table_has_as_many_cells_in_each_line(report: RunReport) -> None:
    for part in markdown(report).split("\n\n"):
        lines = [line for line in part.splitlines() if line.startswith("|")]
        assert len({line.count("|") for line in lines}) <= 1, part


def test_plots_are_svg_with_a_bar_for_each_rival(report: RunReport) -> None:
    found = plots(report)
    assert set(found) == {"rates-1.svg", "latency-1.svg"}
    root = ElementTree.fromstring(found["rates-1.svg"])
    texts = [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")]
    assert texts[1:] == ["Produce in bulk, 100 B", "logboom", "4.00 M", "Kafka", "2.00 M"]
    bars = list(root.iter("{http://www.w3.org/2000/svg}rect"))[1:]
    own, kafka = (float(bar.attrib["width"]) for bar in bars)
    assert own == pytest.approx(2 * kafka, rel=0.01)


def test_a_report_survives_its_json(report: RunReport) -> None:
    encoded = msgspec.json.encode(report)
    assert json.loads(encoded)["results"][0]["setup"] == {
        "brokers": 1,
        "size": 100,
        "codec": "none",
    }
    assert markdown(msgspec.json.decode(encoded, type=RunReport)) == markdown(report)
