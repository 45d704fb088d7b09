"""`logboom balance`: even shares of brokers, and what the planner of moves does or waits for."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from cyclopts import App, Parameter
from msgspec.structs import asdict

from logboom.cli.broker_commands import broker_row
from logboom.cli.connection import open_client, open_operator_client
from logboom.cli.move_wait import agreed, report, wait_for
from logboom.cli.output import note, show, show_json
from logboom.cli.parameters import (
    Confirmed,
    OperatorServers,
    Output,
    Servers,
    Wait,
    WaitTimeout,
)
from logboom.client import Client
from logboom.client.balance_report import (
    plan_lines,
    run_plan,
    share_rows,
    spread_of,
    spread_text,
    status_lines,
)
from logboom.client.move_plans import plan_rows
from logboom.client.written_values import counted
from logboom.wire.errors import Refused
from logboom.wire.operation_messages import (
    MOVES_IN_ALL,
    BalancePlanned,
    ClusterDescribed,
    QueueMoveState,
)

app = App(name="balance", help="Even shares of brokers: status, on, off, run.")
SETTING: Final = "balance_mode"
COLUMNS: Final = ["broker", "state", "mode", "size", "replicas", "leads", "moves"]
LEAST: Final = ("moves", "leads", "mode")
"""Columns that narrow terminals go without, the least important first."""
LOOK: Final = "see `logboom queue list --moving`, end one with `logboom queue cancel`"


@app.command
def status(*, servers: Servers = None, output: Output = "table") -> None:
    """Show what moves or why nothing does, and how even the brokers are.

    For example:

        logboom balance status
        logboom balance status -o json
    """
    with open_client(servers) as boom:
        described = boom.admin.describe_cluster()
    if output == "json":
        show_json(
            {
                "planner": asdict(described.planner),
                "brokers": [broker_row(each) for each in described.brokers],
                "spread": spread_of(described.brokers),
                "moves": [asdict(each) for each in described.moves],
            }
        )
        return
    for line in status_lines(described):
        print(line)
    rows = [broker_row(each) for each in described.brokers]
    show(rows, COLUMNS, output, least=LEAST)
    print(spread_text(described.brokers))


@app.command
def on(
    *,
    mode: Annotated[
        Literal["new-broker", "continuous"],
        Parameter(
            name=["--mode", "-m"],
            help="new-broker: only fill brokers that are new. continuous: keep all brokers even.",
        ),
    ] = "new-broker",
    servers: OperatorServers = None,
) -> None:
    """Let the name servers move replicas by themselves, so that brokers have even shares.

    For example:

        logboom balance on
        logboom balance on --mode continuous
    """
    _set_mode(mode, servers)


@app.command
def off(*, servers: OperatorServers = None) -> None:
    """Move nothing for balance. Repairs and drains go on, and so do moves that have begun.

    For example:

        logboom balance off
    """
    _set_mode("off", servers)


def _set_mode(mode: str, servers: OperatorServers) -> None:
    with open_operator_client(servers) as boom:
        before = boom.admin.describe_cluster().planner.balance_mode
        boom.admin.alter_settings({SETTING: mode})
    note(f"balance_mode: {before or '?'} → {mode}; `logboom balance status` says what moves")


@app.command
def run(
    *,
    dry_run: Annotated[bool, Parameter(negative="", help="Only show what would move.")] = False,
    wait: Wait = False,
    timeout: WaitTimeout = 0.0,
    yes: Confirmed = False,
    servers: OperatorServers = None,
    output: Output = "table",
) -> None:
    """Even out all brokers once, in bytes, replicas and led queues, whatever the mode is.

    At most 20 moves are under way at once. --wait begins the next ones until nothing is left to move;
    without it, say the command again.

    For example:

        logboom balance run --dry-run
        logboom balance run --yes --wait
    """
    if dry_run:
        with open_client(servers) as boom:
            planned = boom.admin.plan_balance()
        if output == "json":
            show_json(run_plan(planned).facts)
        else:
            _show_plan(planned, output)
        return
    with open_operator_client(servers) as boom:
        planned = boom.admin.plan_balance()
        plan = run_plan(planned)
        if output != "json":
            _show_plan(planned, output)
        if not planned.moves:
            if output == "json":
                show_json({**plan.facts, "state": "done"})
            return
        question = f"Begin {counted(len(planned.moves), 'move')}, {MOVES_IN_ALL} at once?"
        if not agreed(plan, question, "nothing was changed", yes=yes, output=output):
            return
        moves = BalanceMoves(boom)
        if not wait:
            begun = moves.begin(planned, len(boom.admin.describe_cluster().moves))
            waiting = len(planned.moves) - begun
            plan.facts.update(begun=begun, waiting=waiting)
            report(plan, "begun", begun_text(begun, waiting), output)
            return
        wait_for(
            boom,
            "balancing",
            moves.ended,
            moves.concerned,
            expected_bytes=plan.copied_bytes,
            timeout_s=timeout,
            goes_on=f"Moves that have begun go on, no others begin: {LOOK}",
        )
        described = boom.admin.describe_cluster()
    for why in moves.reasons:
        note(f"- {why}")
    report(plan, "done", spread_text(described.brokers), output)


class BalanceMoves:
    """The moves of one `balance run`: plans that are begun one after the other, each in part."""

    def __init__(self, boom: Client) -> None:
        self._boom = boom
        self._begun: set[tuple[str, int]] = set()
        self.reasons: list[str] = []
        """Why the last plan held no move."""

    def begin(self, planned: BalancePlanned, under_way: int) -> int:
        """Begin the first moves of a plan, as many as may be under way; return their number.

        Raises:
            Refused: there is room for moves, but none of them has begun.
        """
        first = planned.moves[: max(0, MOVES_IN_ALL - under_way)]
        codes = self._boom.admin.carry_out(first)
        begun = [
            (each.topic, each.queue) for each, code in zip(first, codes, strict=True) if not code
        ]
        self._begun.update(begun)
        if first and not begun:
            raise Refused(
                "no move has begun, the queues or brokers have changed since they were planned: see "
                "`logboom balance status`, and run it again"
            )
        return len(begun)

    def concerned(self, now: ClusterDescribed) -> list[QueueMoveState]:
        """Return those of these moves that are under way."""
        return [each for each in now.moves if (each.topic, each.queue) in self._begun]

    def ended(self, now: ClusterDescribed) -> bool:
        """Return True if nothing is left to plan; begin the next moves if the last ones have ended."""
        if self.concerned(now):
            return False
        planned = self._boom.admin.plan_balance()
        self.reasons = planned.reasons
        if not planned.moves:
            return True
        self.begin(planned, len(now.moves))
        return False


def begun_text(begun: int, waiting: int) -> str:
    """Return in words how many moves of a plan have begun, and what becomes of the others."""
    text = f"{counted(begun, 'move')} begun: {LOOK}"
    if not waiting:
        return text
    others = "1 waits" if waiting == 1 else f"{waiting} wait"
    return (
        f"{text}; {others}, since {MOVES_IN_ALL} may be under way at once: run it again, use --wait, or "
        "`logboom balance on --mode continuous`"
    )


def _show_plan(planned: BalancePlanned, output: str) -> None:
    rows = plan_rows(planned)
    if rows:
        show(rows, ["topic", "queue", "change", "copied", "zones"], output, least=("zones",))
        show(share_rows(planned), ["broker", "size", "replicas", "to_lead"], output)
    for line in plan_lines(planned):
        print(line)
