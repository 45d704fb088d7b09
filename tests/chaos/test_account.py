"""Nodes that end, and what they log, are judged: each excuse holds for its own fault alone."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from logboom.metadata.raft.state_hashes import StateHashes
from tests.chaos.account import (
    COMPARED,
    EXCUSES,
    LOG,
    LOGS,
    METADATA,
    RUNS_ON,
    UNLIKE_COUNTED,
    Account,
    Ended,
    Harm,
    judge_nodes,
    judge_states,
)
from tests.chaos.faults import FAULTS
from tests.chaos.ledger import Verdict
from tests.chaos.node_logs import entries, faults

TIME = "2026-03-04T05:06:07.890Z"
GOOD = f"{TIME} INFO broker-1 node_started kind=broker\n"
LOGGED_TRACE = '    Traceback (most recent call last):\n      File "a.py"\n    KeyError: 7\n'
"""As the log has one, below the line that it belongs to."""
TRACE = 'Traceback (most recent call last):\n  File "a.py", line 1\nKeyError: 7\n'
CORRUPT = f'{TIME} ERROR broker-1 store_given_up folder=x error="Corruption: y"\n'
UNLIKE = f'{TIME} ERROR name-1 state_diverged index=8 text="the state after entry 8 differs from the leader\'s"\n'


def found(
    ended: list[Ended] | None = None, log: str = "", harms: list[Harm] | None = None
) -> dict[str, int]:
    """What a run with one node's log is not kept for."""
    verdict = Verdict()
    judge_nodes(ended or [], {"broker-1": log.encode()}, harms or [], verdict)
    return dict(verdict.broken)


def test_an_end_without_a_fault_is_a_finding() -> None:
    assert found([Ended("broker-1", "broker-1 ended: what now", 10)]) == {RUNS_ON: 1}
    assert found([], GOOD) == {}


def test_an_end_is_explained_by_the_fault_that_struck_that_node_before() -> None:
    end = [Ended("broker-1", "the store in x failed (Corruption: bad block)", 50)]
    assert found(end, harms=[Harm("flipped-bytes", "broker-1", 50)]) == {}
    # Another node, not yet, and a fault that damages nothing.
    for harm in (
        Harm("flipped-bytes", "broker-2", 50),
        Harm("flipped-bytes", "broker-1", 51),
        Harm("kill-leader", "broker-1", 50),
    ):
        assert found(end, harms=[harm]) == {RUNS_ON: 1}
    # Nor does damage explain what is none.
    end = [Ended("broker-1", "Assertion failed: !_more", 50)]
    assert found(end, harms=[Harm("flipped-bytes", "broker-1", 50)]) == {RUNS_ON: 1}


def test_a_full_disk_explains_what_is_said_until_there_is_room_again_and_no_end() -> None:
    harm = Harm("disk-full", "broker-1", len(GOOD), healed=len(GOOD) + 50)
    assert found(log=GOOD + CORRUPT, harms=[harm]) == {}
    assert found(log=GOOD + GOOD + CORRUPT, harms=[harm]) == {LOGS: 1}
    end = [Ended("broker-1", "broker-1 ended: No space left on device", len(GOOD) + 10)]
    assert found(end, harms=[harm]) == {RUNS_ON: 1}


@pytest.mark.parametrize("line", [TRACE, CORRUPT, "Assertion failed: !_more (fq.cpp:80)\n"])
def test_a_faulty_line_is_a_finding(line: str) -> None:
    assert found(log=GOOD + line + GOOD) == {LOGS: 1}


def test_a_line_is_explained_and_the_traceback_behind_it_is_not() -> None:
    harms = [Harm("flipped-bytes", "broker-1", len(GOOD))]
    assert found(log=GOOD + CORRUPT + GOOD, harms=harms) == {}
    for trace in (TRACE, LOGGED_TRACE):
        assert found(log=GOOD + CORRUPT + trace, harms=harms) == {LOGS: 1}
    # Said before the fault struck.
    assert found(log=CORRUPT + GOOD, harms=harms) == {LOGS: 1}


def test_nothing_explains_a_state_unlike_the_leaders() -> None:
    harms = [
        Harm(fault, "broker-1", 0)
        for fault in ("disk-full", "flipped-bytes", "damaged-name-server")
    ]
    assert found(log=UNLIKE, harms=harms) == {METADATA: 1}
    end = [Ended("broker-1", "entry 7 was to be cut: this member has diverged; new raft id", 5)]
    assert found(end, harms=harms) == {RUNS_ON: 1}


def test_name_servers_say_so_in_words_that_are_known(caplog: pytest.LogCaptureFixture) -> None:
    hashes = StateHashes("name-2")
    hashes.take(16, b"ours")
    hashes.hear(16, b"another")
    assert hashes.mismatches == 1
    log = f"{TIME} ERROR name-2 {caplog.messages[0]}\n"
    assert found(log=log) == {METADATA: 1}


@pytest.mark.parametrize(
    ("counted", "findings"),
    [
        ({COMPARED: 3}, 0),
        ({COMPARED: 3, UNLIKE_COUNTED: 1}, 1),
        # Nothing was compared, or it is counted under another name.
        ({COMPARED: 0}, 1),
        ({"state_hashes_compared": 3}, 1),
        ({}, 1),
    ],
)
def test_states_are_to_be_compared_and_alike(counted: dict[str, int], findings: int) -> None:
    verdict = Verdict()
    judge_states({"name-1": Counter(counted), "name-2": Counter({COMPARED: 0})}, verdict)
    assert verdict.broken[METADATA] == findings


def test_a_log_is_taken_apart_by_what_was_said() -> None:
    log = (GOOD + CORRUPT + "and more of it\n" + TRACE + "logboom: it ends\n").encode()
    said = [entry.text for entry in entries(log)]
    assert [text.split()[0] for text in said] == [TIME, TIME, "Traceback", "logboom:"]
    assert [entry.at for entry in faults(log)] == [len(GOOD), log.index(b"Traceback")]


def test_an_account_knows_what_was_logged_when(tmp_path: Path) -> None:
    log = tmp_path / "broker-1" / LOG
    log.parent.mkdir()
    log.write_text(GOOD)
    account = Account(tmp_path)
    account.harm("flipped-bytes", ["broker-1"], account.lengths())
    account.end("broker-1", "broker-1 ended: has lost synced data")
    account.healed()
    verdict = Verdict()
    assert account.judge(verdict) == [
        "flipped-bytes: broker-1: broker-1 ended: has lost synced data"
    ]
    assert verdict.clean
    log.write_text(GOOD + GOOD)
    account.end("broker-1", "broker-1 ended: has lost synced data")
    account.judge(verdict)
    assert dict(verdict.broken) == {RUNS_ON: 1}


def test_every_excuse_is_of_a_fault_that_there_is() -> None:
    assert {each.fault for each in EXCUSES} <= FAULTS.keys()
