"""Health of a node, as probes ask for it: may it be sent requests, may it be stopped. Pure.

The reasons are for people; a probe goes by whether there are any.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from msgspec import Struct

from logboom.wire.restart_check import RestartRisk, majority_remains

MAX_REASONS: Final = 20
"""Reasons that are told; of more, only the number."""


class HealthReport(Struct, frozen=True):
    """The answer to a probe."""

    status: str
    """"ok" or "failed"."""
    node: str
    reasons: list[str]
    """Why it failed; empty if it did not."""


def report(node: str, reasons: Collection[str]) -> HealthReport:
    """Build the answer of a node; without reasons all is well."""
    told = [*reasons][:MAX_REASONS]
    if len(reasons) > len(told):
        told.append(f"and {len(reasons) - len(told)} more")
    return HealthReport("failed" if reasons else "ok", node, told)


class BrokerReadiness:
    """Whether a broker may be sent requests.

    Once its replicas have caught up after the start, it stays ready while they are behind again:
    that a follower is some entries behind is daily work.
    """

    def __init__(self) -> None:
        self._caught_up = False

    def reasons(
        self, figures: Mapping[str, int | float | str], *, stopping: bool, mode: str
    ) -> list[str]:
        """Return why it is not ready, by its figures in STATS; nothing if it is.

        Args:
            figures: Of the broker.
            stopping: True once it was asked to stop.
            mode: As `logboom broker list` shows it.
        """
        if stopping:
            return ["the node is stopping"]
        found = []
        if mode != "active":
            found.append(f"an operator has set the broker's mode to {mode}")
        if not figures.get("registered"):
            refusal = figures.get("refusal")
            text = "the broker is not registered at the name servers"
            found.append(f"{text}: {refusal}" if refusal else text)
        elif not figures.get("lease"):
            found.append("the broker holds no lease: it does not hear the Raft leader")
        unapplied, behind = figures.get("unapplied", 0), figures.get("catching_up", 0)
        if unapplied:
            found.append(f"{unapplied} replicas have entries that are not applied yet")
        if not found and not behind:
            self._caught_up = True
        if behind and not self._caught_up:
            found.append(f"{behind} replicas have yet to catch up with their leaders")
        return found


def name_server_reasons(figures: Mapping[str, int | float | str], *, stopping: bool) -> list[str]:
    """Return why a name server is not ready, by its figures in STATS; nothing if it is."""
    if stopping:
        return ["the node is stopping"]
    found = []
    if not figures.get("in_touch"):
        found.append("the name server does not hear the Raft group")
    left = int(figures.get("raft_commit_index", 0)) - int(figures.get("raft_applied_index", 0))
    if left > 0:
        found.append(f"{left} committed entries are not applied yet")
    return found


def broker_restart_reasons(risks: Collection[RestartRisk], *, registered: bool) -> list[str]:
    """Return why a broker should not be stopped now, by what its queues would lose.

    Its metadata may be that of before its start, and lack what it is about to lead, until it is
    `registered`.
    """
    if not registered:
        return ["the broker is not registered at the name servers: wait until it is"]
    return [f"{each.topic}/{each.queue}: {each.kind}; {each.remedy}" for each in risks]


def name_server_restart_reasons(
    node: str, members: Collection[str], serving: Collection[str]
) -> list[str]:
    """Return why a name server should not be stopped now.

    Args:
        node: The one to be stopped.
        members: The ids of all name servers.
        serving: Those that are connected, this one included if it hears the Raft group.
    """
    if len(members) == 1:
        return ["it is the only name server: brokers lose their leases while it is down"]
    if majority_remains(members, serving, node):
        return []
    left = len({*serving} & {*members} - {node})
    return [f"without it {left} of {len(members)} name servers are left, which is no majority"]
