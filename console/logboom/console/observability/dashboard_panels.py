"""The table of panels: what each dashboard shows; pure.

`$job`, `$instance`, `$topic` and `$group` in an expression are variables of the dashboard; every
selector is narrowed to `$cluster` by `grafana_dashboards`.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, TypeAlias

DashboardName: TypeAlias = Literal["cluster", "broker", "topic", "group", "name-servers"]
PanelKind: TypeAlias = Literal["timeseries", "stat"]
PanelUnit: TypeAlias = Literal["short", "s", "bytes", "Bps", "cps", "percentunit", "dateTimeAsIso"]
"""Units as Grafana names them: s seconds, Bps bytes per second, cps a count per second."""
Threshold: TypeAlias = Literal["", "zero", "one"]
"""zero: anything above 0 is red. one: anything but 1 is red."""


class Query(NamedTuple):
    """One query of a panel."""

    expression: str
    legend: str = ""


class Panel(NamedTuple):
    """One panel."""

    title: str
    queries: tuple[Query, ...]
    unit: PanelUnit = "short"
    kind: PanelKind = "timeseries"
    threshold: Threshold = ""
    description: str = ""


class Row(NamedTuple):
    """A row of panels under a heading."""

    title: str
    panels: tuple[Panel, ...]


class Variable(NamedTuple):
    """A variable of a dashboard, with the values of a label of a metric."""

    name: str
    metric: str
    label: str


class Dashboard(NamedTuple):
    """One dashboard."""

    title: str
    uid: str
    rows: tuple[Row, ...]
    variables: tuple[Variable, ...] = ()


def _one(title: str, expression: str, threshold: Threshold = "zero", *, about: str = "") -> Panel:
    return Panel(title, (Query(expression),), kind="stat", threshold=threshold, description=about)


def _quantiles(metric: str, by: str = "", legend: str = "") -> tuple[Query, ...]:
    """Return queries for median and p99 of a histogram."""
    labels = f"le, {by}" if by else "le"
    return tuple(
        Query(
            f"histogram_quantile({quantile}, sum by ({labels}) (rate({metric}[$__rate_interval])))",
            f"{legend} {name}".strip(),
        )
        for name, quantile in (("median", 0.5), ("p99", 0.99))
    )


_RATE: Final = "[$__rate_interval]"

CLUSTER: Final = Dashboard(
    "logboom: cluster",
    "logboom-cluster",
    (
        Row(
            "Health",
            (
                _one("Queues without leader", "max(logboom_queues_leaderless)"),
                _one("Queues below min in sync", "sum(logboom_queues_below_min_in_sync)"),
                _one("Under-replicated queues", "sum(logboom_queues_under_replicated)"),
                _one("Raft leaders", "sum(logboom_raft_is_leader)", "one"),
                _one("Fenced brokers", 'max(logboom_brokers{state="fenced"})'),
                _one("Brokers with a full disk", "sum(logboom_disk_full)"),
                _one("Damaged queues", "sum(logboom_queues_damaged)"),
                _one("Stuck moves", 'sum(logboom_moves{state="stuck"})'),
            ),
        ),
        Row(
            "Traffic",
            (
                Panel(
                    "Messages",
                    (
                        Query(f"sum(rate(logboom_produced_messages_total{_RATE}))", "produced"),
                        Query(f"sum(rate(logboom_pulled_messages_total{_RATE}))", "consumed"),
                    ),
                    "cps",
                ),
                Panel(
                    "Bytes",
                    (
                        Query(f"sum(rate(logboom_produced_bytes_total{_RATE}))", "produced"),
                        Query(f"sum(rate(logboom_pulled_bytes_total{_RATE}))", "consumed"),
                        Query(
                            f'sum(rate(logboom_replicated_bytes_total{{direction="out"}}{_RATE}))',
                            "replicated",
                        ),
                    ),
                    "Bps",
                ),
                Panel(
                    "Time of a produce request",
                    _quantiles('logboom_request_seconds_bucket{type="produce"}'),
                    "s",
                    description="From its arrival at the leader to its answer.",
                ),
                Panel(
                    "Errors answered",
                    (Query(f"sum by (code) (rate(logboom_failures_total{_RATE}))", "{{code}}"),),
                    "cps",
                ),
            ),
        ),
        Row(
            "Replication",
            (
                Panel(
                    "Changes of in-sync replicas",
                    (
                        Query(
                            f"sum by (direction) (rate(logboom_isr_changes_total{_RATE}))",
                            "{{direction}}",
                        ),
                    ),
                    "cps",
                ),
                Panel(
                    "Changes of leaders",
                    (
                        Query(f"max(rate(logboom_leader_changes_total{_RATE}))", "all"),
                        Query(f"max(rate(logboom_unclean_elections_total{_RATE}))", "unclean"),
                    ),
                    "cps",
                ),
                Panel(
                    "Queues that are not as they should be",
                    (
                        Query("max(logboom_queues_leaderless)", "without leader"),
                        Query("sum(logboom_queues_under_replicated)", "under-replicated"),
                        Query("max(logboom_queues_displaced)", "led by another replica"),
                    ),
                ),
                Panel(
                    "Moves of replicas",
                    (Query("sum by (state) (logboom_moves)", "{{state}}"),),
                ),
                Panel(
                    "Bytes that moves have left",
                    (Query("sum(logboom_move_left_bytes)", "left"),),
                    "bytes",
                ),
            ),
        ),
        Row(
            "Groups and disks",
            (
                Panel(
                    "Groups that are the furthest behind",
                    (Query("topk(10, max by (group) (logboom_group_lag_seconds))", "{{group}}"),),
                    "s",
                ),
                Panel(
                    "Dead letters that arrive",
                    (
                        Query(
                            f"sum by (group) (rate(logboom_dead_letters_total{_RATE})) > 0",
                            "{{group}}",
                        ),
                    ),
                    "cps",
                ),
                Panel(
                    "Disk used",
                    (
                        Query(
                            'sum by (instance) (logboom_disk_bytes{kind="used"}) '
                            '/ sum by (instance) (logboom_disk_bytes{kind=~"used|free"})',
                            "{{instance}}",
                        ),
                    ),
                    "percentunit",
                ),
                Panel(
                    "Topics, queues, groups",
                    (
                        Query("max(logboom_topics)", "topics"),
                        Query("max(logboom_queues)", "queues"),
                        Query("max(logboom_groups)", "groups"),
                    ),
                ),
            ),
        ),
    ),
)

_AT: Final = '{instance=~"$instance"}'
_AT_RATE: Final = _AT + _RATE

BROKER: Final = Dashboard(
    "logboom: broker",
    "logboom-broker",
    (
        Row(
            "State",
            (
                _one("Lease held", f"min(logboom_lease_held{_AT})", "one"),
                _one("Registered", f"min(logboom_registered{_AT})", "one"),
                _one("Queues led", f"sum(logboom_queues_led{_AT})", ""),
                _one("Replicas", f"sum(logboom_replicas{_AT})", ""),
                _one("Disk full", f"max(logboom_disk_full{_AT})"),
                _one("Damaged queues", f"sum(logboom_queues_damaged{_AT})"),
            ),
        ),
        Row(
            "Requests",
            (
                Panel(
                    "Messages",
                    (
                        Query(
                            f"sum by (instance) (rate(logboom_produced_messages_total{_AT_RATE}))",
                            "produced at {{instance}}",
                        ),
                        Query(
                            f"sum by (instance) (rate(logboom_pulled_messages_total{_AT_RATE}))",
                            "consumed at {{instance}}",
                        ),
                    ),
                    "cps",
                ),
                Panel(
                    "Time of requests (p99)",
                    (
                        Query(
                            "histogram_quantile(0.99, sum by (le, type) "
                            f"(rate(logboom_request_seconds_bucket{_AT_RATE})))",
                            "{{type}}",
                        ),
                    ),
                    "s",
                    description="Pulls and replication include the time that they are held.",
                ),
                Panel(
                    "Time until all in-sync replicas have a batch",
                    _quantiles(f"logboom_produce_replication_seconds_bucket{_AT}"),
                    "s",
                ),
                Panel(
                    "Time that pulls are held",
                    _quantiles(f"logboom_hold_seconds_bucket{_AT}"),
                    "s",
                ),
                Panel(
                    "Errors answered",
                    (
                        Query(
                            f"sum by (code) (rate(logboom_failures_total{_AT_RATE}))", "{{code}}"
                        ),
                        Query(f"sum(rate(logboom_busy_answers_total{_AT_RATE}))", "busy"),
                    ),
                    "cps",
                ),
                Panel(
                    "Waiting",
                    (
                        Query(f"sum(logboom_holds{_AT})", "held pulls"),
                        Query(f"sum(logboom_throttled_requests{_AT})", "throttled requests"),
                        Query(f"sum(logboom_slow_readers{_AT})", "slow readers"),
                        Query(f"sum(logboom_parked_batches{_AT})", "parked batches"),
                    ),
                ),
            ),
        ),
        Row(
            "Disk and memory",
            (
                Panel("Sync", _quantiles(f"logboom_sync_seconds_bucket{_AT}"), "s"),
                Panel(
                    "Disk",
                    (
                        Query(
                            'sum by (kind) (logboom_disk_bytes{instance=~"$instance"})',
                            "{{kind}}",
                        ),
                    ),
                    "bytes",
                ),
                Panel(
                    "RocksDB",
                    (
                        Query(
                            f"sum(logboom_rocksdb_pending_compaction_bytes{_AT})",
                            "to be compacted",
                        ),
                        Query(f"sum(logboom_unsynced_bytes{_AT})", "not on disk yet"),
                    ),
                    "bytes",
                ),
                Panel(
                    "Part of the time in which RocksDB holds up writes",
                    (
                        Query(
                            "sum by (instance) "
                            f"(rate(logboom_rocksdb_stall_seconds_total{_AT_RATE}))",
                            "{{instance}}",
                        ),
                    ),
                    "percentunit",
                ),
                Panel(
                    "Memory",
                    (
                        Query(
                            f"sum by (instance) (logboom_process_resident_memory_bytes{_AT})",
                            "{{instance}}",
                        ),
                        Query(
                            f"sum by (instance) (logboom_cache_bytes{_AT})", "cache {{instance}}"
                        ),
                    ),
                    "bytes",
                ),
                Panel(
                    "Age of the last scrub",
                    (Query(f"max by (instance) (logboom_scrub_age_seconds{_AT})", "{{instance}}"),),
                    "s",
                ),
            ),
        ),
        Row(
            "Process",
            (
                Panel(
                    "Processor",
                    (
                        Query(
                            f"sum by (instance) (rate(logboom_process_cpu_seconds_total{_AT_RATE}))",
                            "process at {{instance}}",
                        ),
                        Query(
                            f"sum by (instance) (rate(logboom_loop_busy_seconds_total{_AT_RATE}))",
                            "loop at {{instance}}",
                        ),
                    ),
                    "percentunit",
                    description="A loop that is busy for more than 0.8 of the time is at its limit.",
                ),
                Panel(
                    "Turn of the loop", _quantiles(f"logboom_loop_turn_seconds_bucket{_AT}"), "s"
                ),
                Panel(
                    "Sessions",
                    (Query(f"sum by (kind) (logboom_sessions{_AT})", "{{kind}}"),),
                ),
                Panel(
                    "File descriptors",
                    (
                        Query(
                            f"max by (instance) (logboom_process_open_fds{_AT} "
                            f"/ logboom_process_max_fds{_AT})",
                            "{{instance}}",
                        ),
                    ),
                    "percentunit",
                ),
                Panel(
                    "Refused",
                    (
                        Query(
                            f"sum(rate(logboom_authentication_failures_total{_AT_RATE}))",
                            "unknown keys",
                        ),
                        Query(f"sum(rate(logboom_denied_total{_AT_RATE}))", "no right"),
                        Query(
                            f"sum(rate(logboom_connections_refused_total{_AT_RATE}))",
                            "too many connections",
                        ),
                    ),
                    "cps",
                ),
            ),
        ),
    ),
    (Variable("instance", "logboom_lease_held", "instance"),),
)

TOPIC: Final = Dashboard(
    "logboom: topic",
    "logboom-topic",
    (
        Row(
            "Topic",
            (
                Panel(
                    "Bytes of one replica",
                    (Query('sum by (topic) (logboom_topic_bytes{topic=~"$topic"})', "{{topic}}"),),
                    "bytes",
                ),
                Panel(
                    "Growth",
                    (
                        Query(
                            'sum by (topic) (deriv(logboom_topic_bytes{topic=~"$topic"}[10m]))',
                            "{{topic}}",
                        ),
                    ),
                    "Bps",
                    description="Bytes produced, less what retention removes.",
                ),
                Panel(
                    "Messages produced",
                    (
                        Query(
                            "sum by (topic) "
                            f'(rate(logboom_queue_end_offset{{topic=~"$topic"}}{_RATE}))',
                            "{{topic}}",
                        ),
                    ),
                    "cps",
                    description="Needs `logboom exporter --queues`.",
                ),
                Panel(
                    "Messages kept",
                    (
                        Query(
                            'sum by (topic) (logboom_queue_end_offset{topic=~"$topic"} '
                            '- logboom_queue_start_offset{topic=~"$topic"})',
                            "{{topic}}",
                        ),
                    ),
                    description="Needs `logboom exporter --queues`.",
                ),
            ),
        ),
        Row(
            "Consumers",
            (
                Panel(
                    "Lag of groups",
                    (
                        Query(
                            'sum by (group, topic) (logboom_group_lag{topic=~"$topic"})',
                            "{{group}} in {{topic}}",
                        ),
                    ),
                ),
                Panel(
                    "Lag of groups in time",
                    (
                        Query(
                            'max by (group, topic) (logboom_group_lag_seconds{topic=~"$topic"})',
                            "{{group}} in {{topic}}",
                        ),
                    ),
                    "s",
                ),
                Panel(
                    "Lag of subscriptions",
                    (
                        Query(
                            "sum by (subscription, topic) "
                            '(logboom_subscription_lag{topic=~"$topic"})',
                            "{{subscription}} in {{topic}}",
                        ),
                    ),
                ),
                Panel(
                    "Lag of subscriptions in time",
                    (
                        Query(
                            "max by (subscription, topic) "
                            '(logboom_subscription_lag_seconds{topic=~"$topic"})',
                            "{{subscription}} in {{topic}}",
                        ),
                    ),
                    "s",
                ),
                Panel(
                    "Held by consumers of subscriptions",
                    (
                        Query(
                            "sum by (subscription, topic) "
                            '(logboom_subscription_pending{topic=~"$topic"})',
                            "{{subscription}} in {{topic}}",
                        ),
                    ),
                ),
                Panel(
                    "Consumers of subscriptions",
                    (
                        Query(
                            "sum by (subscription, topic) "
                            '(logboom_subscription_members{topic=~"$topic"})',
                            "{{subscription}} in {{topic}}",
                        ),
                    ),
                ),
            ),
        ),
    ),
    (Variable("topic", "logboom_topic_bytes", "topic"),),
)

_OF: Final = '{group=~"$group"}'

GROUP: Final = Dashboard(
    "logboom: group",
    "logboom-group",
    (
        Row(
            "Progress",
            (
                Panel(
                    "Lag in time",
                    (
                        Query(
                            f"max by (group, topic) (logboom_group_lag_seconds{_OF})",
                            "{{group}} in {{topic}}",
                        ),
                    ),
                    "s",
                ),
                Panel(
                    "Lag in messages",
                    (
                        Query(
                            f"sum by (group, topic) (logboom_group_lag{_OF})",
                            "{{group}} in {{topic}}",
                        ),
                    ),
                ),
                Panel(
                    "Growth of the lag",
                    (Query(f"sum by (group) (deriv(logboom_group_lag{_OF}[10m]))", "{{group}}"),),
                    "cps",
                    description="Messages produced per second, less those that are finished.",
                ),
            ),
        ),
        Row(
            "Members and failures",
            (
                Panel(
                    "Members",
                    (Query(f"sum by (group) (logboom_group_members{_OF})", "{{group}}"),),
                ),
                Panel(
                    "Rebalances in 10 minutes",
                    (
                        Query(
                            f"sum by (group) (changes(logboom_group_epoch{_OF}[10m]))", "{{group}}"
                        ),
                    ),
                ),
                Panel(
                    "Dead letters stored",
                    (Query(f"sum by (group) (logboom_dead_letters_stored{_OF})", "{{group}}"),),
                ),
                Panel(
                    "Dead letters that arrive",
                    (
                        Query(
                            f"sum by (group) (rate(logboom_dead_letters_total{_OF}{_RATE}))",
                            "{{group}}",
                        ),
                    ),
                    "cps",
                ),
            ),
        ),
        Row(
            "Transactions of the cluster",
            (
                Panel(
                    "Undecided",
                    (
                        Query("sum(logboom_transactions_open)", "transactions"),
                        Query("sum(logboom_half_messages)", "half messages"),
                    ),
                ),
                Panel(
                    "Age of the oldest transaction",
                    (Query("max(logboom_transaction_oldest_seconds)", "oldest"),),
                    "s",
                ),
            ),
        ),
    ),
    (Variable("group", "logboom_group_members", "group"),),
)

NAME_SERVERS: Final = Dashboard(
    "logboom: name servers",
    "logboom-name-servers",
    (
        Row(
            "Raft",
            (
                _one("Raft leaders", "sum(logboom_raft_is_leader)", "one"),
                _one("Members", "max(logboom_raft_members)", ""),
                _one(
                    "Members down",
                    "min(logboom_raft_members - 1 - logboom_raft_peers_up)",
                    about="As the best connected name server sees it.",
                ),
                _one("Out of touch", "count(logboom_raft_in_touch == 0) or vector(0)"),
                Panel(
                    "Who leads",
                    (Query("max by (instance) (logboom_raft_is_leader)", "{{instance}}"),),
                ),
                Panel("Term", (Query("max by (instance) (logboom_raft_term)", "{{instance}}"),)),
                Panel(
                    "Entries committed",
                    (Query(f"max(rate(logboom_raft_commit_index{_RATE}))", "committed"),),
                    "cps",
                ),
                Panel(
                    "Entries that are not applied yet",
                    (
                        Query(
                            "max by (instance) "
                            "(logboom_raft_commit_index - logboom_raft_applied_index)",
                            "{{instance}}",
                        ),
                    ),
                ),
                Panel(
                    "Time of a command",
                    _quantiles("logboom_raft_commit_seconds_bucket"),
                    "s",
                ),
                Panel(
                    "Sync of the journal",
                    _quantiles('logboom_sync_seconds_bucket{job="logboom-name-servers"}'),
                    "s",
                ),
                Panel(
                    "Log since the last snapshot",
                    (Query("max by (instance) (logboom_raft_log_bytes)", "{{instance}}"),),
                    "bytes",
                ),
            ),
        ),
        Row(
            "Cluster",
            (
                Panel("Brokers", (Query("max by (state) (logboom_brokers)", "{{state}}"),)),
                Panel(
                    "Elections of leaders",
                    (Query(f"max(rate(logboom_leader_changes_total{_RATE}))", "elections"),),
                    "cps",
                ),
                Panel(
                    "Sessions",
                    (
                        Query(
                            'sum by (kind) (logboom_sessions{job="logboom-name-servers"})',
                            "{{kind}}",
                        ),
                    ),
                ),
                Panel(
                    "Next key that ends",
                    (Query("min(logboom_key_expiry_timestamp_seconds) * 1000"),),
                    "dateTimeAsIso",
                    "stat",
                ),
            ),
        ),
    ),
)

DASHBOARDS: Final[dict[DashboardName, Dashboard]] = {
    "cluster": CLUSTER,
    "broker": BROKER,
    "topic": TOPIC,
    "group": GROUP,
    "name-servers": NAME_SERVERS,
}
"""The dashboards by the names that `logboom generate grafana` takes."""
