"""The table of alerts, and the rules file that Prometheus reads; pure.

Alerts are about symptoms of a whole cluster or a node, never about single queues. Thresholds are
ratios and times, not sizes, so that they hold for small and large clusters. Every alert has a section
in docs/RUNBOOKS.md. `by (cluster)` keeps several clusters of one Prometheus apart: it is the label
that the scrape jobs of `logboom generate prometheus` set.
"""

from __future__ import annotations

import json
from typing import Final, Literal, NamedTuple, TypeAlias

Severity: TypeAlias = Literal["critical", "warning"]

RUNBOOKS: Final = "docs/RUNBOOKS.md"
"""Where the runbooks are in this project; give the address at which your people read them."""


class AlertRule(NamedTuple):
    """One alert."""

    name: str
    expression: str
    lasts: str
    """How long the expression must hold before the alert fires, as Prometheus writes durations."""
    severity: Severity
    summary: str
    """One line; may use the labels of the result."""
    description: str
    """What it means and what to do first, in one or two sentences."""

    @property
    def anchor(self) -> str:
        """The anchor of its section in docs/RUNBOOKS.md."""
        return self.name.lower()


_IN: Final = "{{ if $labels.cluster }} of {{ $labels.cluster }}{{ end }}"

ALERTS: Final[tuple[AlertRule, ...]] = (
    AlertRule(
        "LogboomQueuesLeaderless",
        "max by (cluster) (logboom_queues_leaderless) > 0",
        "1m",
        "critical",
        f"{{{{ $value }}}} queues{_IN} have no leader",
        "Nobody can write to these queues or read from them: all their in-sync replicas are down. "
        "Start the brokers that have them.",
    ),
    AlertRule(
        "LogboomQueuesBelowMinInSync",
        "sum by (cluster) (logboom_queues_below_min_in_sync) > 0",
        "1m",
        "critical",
        f"{{{{ $value }}}} queues{_IN} have too few replicas in sync",
        "Writes with acks=all to these queues are refused until more of their replicas are in sync.",
    ),
    AlertRule(
        "LogboomQueuesUnderReplicated",
        "sum by (cluster) (logboom_queues_under_replicated) > 0",
        "5m",
        "warning",
        f"{{{{ $value }}}} queues{_IN} are under-replicated",
        "Some of their replicas are down or do not keep up. Nothing is refused yet, but fewer further "
        "failures are survived.",
    ),
    AlertRule(
        "LogboomIsrChurn",
        'sum by (cluster) (increase(logboom_isr_changes_total{direction="shrink"}[5m])) '
        "/ max by (cluster) (logboom_queues) > 0.05",
        "15m",
        "warning",
        f"Replicas{_IN} leave the in-sync replicas again and again",
        "In each of the last 5 minutes' windows more than one queue in 20 lost an in-sync replica. A "
        "broker or the network is overloaded, or a broker restarts in a loop.",
    ),
    AlertRule(
        "LogboomRaftLeaderless",
        "sum by (cluster) (logboom_raft_is_leader) < 1 or absent(logboom_raft_is_leader)",
        "1m",
        "critical",
        f"The name servers{_IN} have no Raft leader",
        "No leader is elected, no topic is created and no group changes. Producers and consumers go "
        "on at the leaders that they have, until one of these fails.",
    ),
    AlertRule(
        "LogboomRaftMembersDown",
        "min by (cluster) (logboom_raft_members - 1 - logboom_raft_peers_up) > 0",
        "5m",
        "warning",
        f"{{{{ $value }}}} name servers{_IN} are down",
        "The others go on while they are a majority. Start those that are missing.",
    ),
    AlertRule(
        "LogboomRaftLeaderChanges",
        "max by (cluster) (max_over_time(logboom_raft_term[15m]) "
        "- min_over_time(logboom_raft_term[15m])) > 3",
        "1m",
        "warning",
        f"The Raft leader{_IN} has changed {{{{ $value }}}} times in 15 minutes",
        "Name servers lose touch with each other, or are too busy to answer in time: look at their "
        "disks, processors and network.",
    ),
    AlertRule(
        "LogboomSyncSlow",
        "histogram_quantile(0.99, sum by (cluster, job, instance, le) "
        "(rate(logboom_sync_seconds_bucket[5m]))) > 0.5",
        "5m",
        "warning",
        "One sync in a hundred takes {{ $value | humanizeDuration }} at {{ $labels.instance }}",
        "Every acknowledged write waits for a sync, so the disk slows down all producers of this node.",
    ),
    AlertRule(
        "LogboomDiskFillsSoon",
        # By the last hour and by the last quarter of it: else it went on long after a clean-up.
        'predict_linear(logboom_disk_bytes{kind="free"}[1h], 4 * 3600) '
        '< ignoring (kind) logboom_disk_bytes{kind="reserve"} '
        'and predict_linear(logboom_disk_bytes{kind="free"}[15m], 4 * 3600) '
        '< ignoring (kind) logboom_disk_bytes{kind="reserve"}',
        "15m",
        "warning",
        "The disk of {{ $labels.instance }} will be full within 4 hours",
        "At the pace of the last hour, only the reserve will be left, and the broker will refuse "
        "writes.",
    ),
    AlertRule(
        "LogboomDiskFull",
        "max by (cluster, instance) (logboom_disk_full) > 0",
        "1m",
        "critical",
        "{{ $labels.instance }} refuses writes, since its disk is full",
        "The queues that it leads take no messages. It goes on by itself once there is room.",
    ),
    AlertRule(
        "LogboomDamageFound",
        "sum by (cluster, instance) (increase(logboom_damages_total[15m])) > 0 "
        "or sum by (cluster, instance) (logboom_queues_damaged) > 0",
        "0m",
        "critical",
        "{{ $labels.instance }} has found damaged data",
        "The disk returned other bytes than were written. What other replicas have is mended by "
        "itself; a disk that does so once does it again.",
    ),
    AlertRule(
        "LogboomMovesStalled",
        'sum by (cluster) (logboom_moves{state="stuck"}) > 0 '
        'or (sum by (cluster) (logboom_moves{state="waiting"}) > 0 '
        'and sum by (cluster) (logboom_moves{state="running"}) == 0)',
        "15m",
        "warning",
        f"Moves of replicas{_IN} make no progress",
        "Replicas that are to be moved, repaired or drained cannot: a destination is down or full, or "
        "there is nowhere to go.",
    ),
    AlertRule(
        "LogboomGroupLagGrows",
        "max by (cluster, group) (deriv(logboom_group_lag_seconds[10m])) > 0.1",
        "15m",
        "warning",
        "Group {{ $labels.group }} falls behind",
        "For 15 minutes its lag has grown by more than a tenth of the time that passed: its members "
        "stand still, or are too slow.",
    ),
    AlertRule(
        "LogboomGroupWithoutMembers",
        "sum by (cluster, group) (logboom_group_members) == 0 "
        "and sum by (cluster, group) (logboom_group_lag) > 0",
        "10m",
        "warning",
        "Group {{ $labels.group }} has messages and no members",
        "Nobody consumes. If the group is not needed any more, delete it.",
    ),
    AlertRule(
        "LogboomDeadLetters",
        "sum by (cluster, group) (increase(logboom_dead_letters_total[10m])) > 0 "
        "or (sum by (cluster, group) (logboom_dead_letters_total) > 0 "
        "unless sum by (cluster, group) (logboom_dead_letters_total offset 10m)) "
        "and on (cluster) max by (cluster) (logboom_exporter_sample_age_seconds offset 10m)",
        "0m",
        "warning",
        "Messages of {{ $labels.group }} become dead letters",
        "Its consumers have failed on them as often as they may. Find the cause, then send them again.",
    ),
    AlertRule(
        "LogboomKeyEndsSoon",
        "min by (cluster) (logboom_key_expiry_timestamp_seconds) - time() < 7 * 86400",
        "10m",
        "warning",
        f"A key{_IN} ends in {{{{ $value | humanizeDuration }}}}",
        "From then on its holder is not let in. Give the user another key before.",
    ),
)


def rules_file(runbooks: str = RUNBOOKS) -> str:
    """Return the alerts as a rules file of Prometheus.

    Args:
        runbooks: address of docs/RUNBOOKS.md.
    """
    lines = [
        "# Alerts of logboom, written by `logboom generate alerts`.",
        "groups:",
        "  - name: logboom",
        "    rules:",
    ]
    for each in ALERTS:
        lines += [
            f"      - alert: {each.name}",
            f"        expr: {json.dumps(each.expression)}",
            f"        for: {each.lasts}",
            "        labels:",
            f"          severity: {each.severity}",
            "        annotations:",
            f"          summary: {json.dumps(each.summary)}",
            f"          description: {json.dumps(each.description)}",
            f"          runbook_url: {json.dumps(f'{runbooks}#{each.anchor}')}",
        ]
    return "\n".join(lines) + "\n"
