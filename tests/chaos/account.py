"""What nodes did by themselves during a run: where they ended, what faults they logged, and whether
a fault that the run struck them with explains it.

Nodes that the run stops or kills are none of this. Everything else that ends is a finding, and so
is every faulty line of every log, unless a row of `EXCUSES` says why it had to be.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from tests.chaos.ledger import Verdict
from tests.chaos.node_logs import faults

RUNS_ON: Final = "nodes run on"
LOGS: Final = "nodes log no fault"
METADATA: Final = "name servers hold the same state"
LOG: Final = "node.log"
SHOWN: Final = 600
"""Characters of what a node said that a finding shows."""

UNLIKE: Final = re.compile(r"differs from the leader's|has diverged")
"""A name server whose state or log is not that of the others (P12). Nothing excuses it, also no
damage: that is found by checksums before it is taken for state. Each process logs it at once, so it
is seen also of those that are killed right after; their counters go with them."""

COMPARED: Final = "raft_state_hashes_compared"
UNLIKE_COUNTED: Final = "raft_state_hash_mismatches"


@dataclass(frozen=True, slots=True)
class Excuse:
    """What a node may say, or end with, after a fault."""

    fault: str
    says: re.Pattern[str]
    lasting: bool
    """Until the end of the run; else until the cluster was whole again after the fault."""
    why: str
    ends: bool = True
    """Whether it explains an end too, and not only a line of the log."""


EXCUSES: Final = (
    Excuse(
        "disk-full",
        re.compile(""),
        lasting=False,
        why="a broker whose disk takes no byte more says so, and waits for room. Its log lies on that "
        "disk: what it says there is cut, or not said at all",
        ends=False,
    ),
    Excuse(
        "disk-full",
        re.compile("No space left on device"),
        lasting=True,
        why="lines that the full disk refused are written as soon as it takes some again",
        ends=False,
    ),
    Excuse(
        "flipped-bytes",
        re.compile(
            "Corruption|DataDamaged|is damaged|damage_found|store_given_up|store_set_aside|cannot be "
            "read"
        ),
        lasting=True,
        why="damage in RocksDB's own files ends the broker, which sets the store aside at its "
        "next start (Q14); in a file that is rarely read it may be found much later",
    ),
    Excuse(
        "flipped-bytes",
        re.compile("has lost synced data|store_suspect"),
        lasting=False,
        why="what follows on a flipped byte of the write-ahead log is not read: the broker says so, "
        "and begins as suspect (Q13)",
    ),
    Excuse(
        "damaged-name-server",
        re.compile("new raft id|Corruption"),
        lasting=True,
        why="a name server with a damaged journal or snapshot ends, and is replaced (R9)",
    ),
)


@dataclass(frozen=True, slots=True)
class Harm:
    """A fault struck a node so that it may end, or log that something is wrong."""

    fault: str
    node: str
    since: int
    """Bytes that its log had then."""
    healed: int | None = None
    """Bytes that it had when the cluster was whole again."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A node ended by itself."""

    node: str
    words: str
    at: int
    """Bytes of its log when that was seen."""


def excuse(
    harms: Iterable[Harm], node: str, at: int, said: str, *, ended: bool = False
) -> Excuse | None:
    """Why a node had to say something, or `ended` with it, at a place of its log."""
    if UNLIKE.search(said):
        return None
    for harm in harms:
        if harm.node != node or at < harm.since:
            continue
        for each in EXCUSES:
            over = not each.lasting and harm.healed is not None and at > harm.healed
            if ended and not each.ends:
                continue
            if each.fault == harm.fault and not over and each.says.search(said):
                return each
    return None


def judge_nodes(
    ended: Iterable[Ended], logs: Mapping[str, bytes], harms: Iterable[Harm], verdict: Verdict
) -> list[str]:
    """Put what nothing explains into `verdict`; what something explains is returned, in words."""
    harms, explained = list(harms), []
    said = [(RUNS_ON, end.node, end.at, end.words) for end in ended]
    said += [
        (METADATA if UNLIKE.search(entry.text) else LOGS, node, entry.at, entry.text)
        for node, log in logs.items()
        for entry in faults(log)
    ]
    for name, node, at, text in said:
        detail = f"{node}: {text[-SHOWN:]}"
        why = excuse(harms, node, at, text, ended=name == RUNS_ON)
        if why is None:
            verdict.found(name, detail)
        else:
            explained.append(f"{why.fault}: {detail}")
    return explained


def judge_states(counters: Mapping[str, Counter[str]], verdict: Verdict) -> None:
    """Hold what name servers count of their states (P12); `counters`: node → its counters."""
    # A counter that has another name is 0 for ever: that some were compared says that it has not.
    if not any(each[COMPARED] for each in counters.values()):
        verdict.found(METADATA, "no name server has compared its state with the leader's")
    for name, each in counters.items():
        if each[UNLIKE_COUNTED]:
            verdict.found(
                METADATA, f"{name} found its state unlike the leader's", each[UNLIKE_COUNTED]
            )


class Account:
    """Keeps the account of one run, whose nodes have their folders in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.ended: list[Ended] = []
        self._harms: list[Harm] = []
        self._broken: list[tuple[str, str]] = []

    def broken(self, name: str, detail: str) -> None:
        """A fault saw that a promise was not kept."""
        self._broken.append((name, detail))

    def logs(self) -> dict[str, bytes]:
        """Node → its log; also of those that were replaced."""
        return {path.parent.name: path.read_bytes() for path in self._folder.glob(f"*/{LOG}")}

    def lengths(self) -> dict[str, int]:
        """Node → bytes of its log."""
        return {path.parent.name: path.stat().st_size for path in self._folder.glob(f"*/{LOG}")}

    def last_line(self, node: str) -> str:
        """What a node said last."""
        said = (self._folder / node / LOG).read_text(encoding="utf-8", errors="replace")
        lines = said.strip().splitlines()
        return lines[-1] if lines else ""

    def end(self, node: str, words: str) -> None:
        """A node has ended by itself."""
        self.ended.append(Ended(node, words, self.lengths().get(node, 0)))

    def harm(self, fault: str, nodes: Iterable[str], before: Mapping[str, int]) -> None:
        """A fault struck nodes; `before`: the lengths of the logs before it did."""
        self._harms += [Harm(fault, node, before.get(node, 0)) for node in nodes]

    def healed(self) -> None:
        """The cluster is whole."""
        lengths = self.lengths()
        self._harms = [
            replace(harm, healed=lengths.get(harm.node, 0)) if harm.healed is None else harm
            for harm in self._harms
        ]

    def judge(self, verdict: Verdict) -> list[str]:
        """See `judge_nodes`: of all that was seen."""
        for name, detail in self._broken:
            verdict.found(name, detail)
        return judge_nodes(self.ended, self.logs(), self._harms, verdict)
