"""Waiting until moves have ended, with a progress bar; the work goes on if the wait ends."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Final

from logboom.cli.confirmation import confirmed
from logboom.cli.output import note, show_json
from logboom.cli.progress_bar import progress
from logboom.client import Client
from logboom.client.move_plans import OperationPlan
from logboom.client.move_progress import MoveProgress
from logboom.client.written_values import bytes_text
from logboom.wire.errors import RetryableError, TimedOut
from logboom.wire.operation_messages import ClusterDescribed, QueueMoveState

PAUSE_S: Final = 0.5
"""Seconds between two looks."""


def agreed(plan: OperationPlan, question: str, declined: str, *, yes: bool, output: str) -> bool:
    """Show a plan, and return True if it is to be done: `yes`, or the person at the terminal agrees.

    Raises:
        InvalidRequest: nobody can be asked.
    """
    if output != "json":
        for line in plan.lines:
            print(line)
        sys.stdout.flush()
    return yes or confirmed(question, "say --yes to do it: nobody can be asked here", declined)


def report(plan: OperationPlan, state: str, text: str, output: str) -> None:
    """Say what has become of a plan: `begun` or `done`."""
    if output == "json":
        show_json({**plan.facts, "state": state})
    else:
        note(text)


def wait_for(
    boom: Client,
    what: str,
    ended: Callable[[ClusterDescribed], bool],
    concerned: Callable[[ClusterDescribed], list[QueueMoveState]],
    *,
    expected_bytes: int = 0,
    timeout_s: float = 0.0,
    goes_on: str,
) -> None:
    """Wait until `ended`; show the progress of the moves that are `concerned`, and why one is stuck.

    Args:
        what: What is waited for, in few words.
        expected_bytes: What will be copied, as planned.
        timeout_s: How long; 0: until it has ended.
        goes_on: What goes on if the wait ends early, how to see it and how to end it.

    Raises:
        TimedOut: it has not ended by then.
    """
    begun, moved = time.monotonic(), MoveProgress(expected_bytes)
    told: set[str] = set()
    on_terminal = sys.stderr.isatty()
    try:
        with progress(what, expected_bytes or None, in_bytes=True) as bar:
            while True:
                why = _look(boom, ended, concerned, moved)
                if why is None:
                    break
                bar.expect(moved.total_bytes)
                bar.to(moved.done_bytes)
                bar.say(f"{what}: {why[0]}" if why else what)
                for reason in why:
                    # A bar shows it; without one it is said once.
                    if reason not in told and not on_terminal:
                        told.add(reason)
                        note(f"{what}: {reason}")
                if timeout_s and time.monotonic() - begun > timeout_s:
                    reasons = "; ".join(why) or moved.text()
                    raise TimedOut(
                        f"{what} has not ended after {timeout_s:g} s ({reasons}). {goes_on}"
                    )
                # The name servers push metadata, but loads are asked for.
                time.sleep(PAUSE_S)
    except KeyboardInterrupt:
        note(goes_on)
        raise
    took = time.monotonic() - begun
    size = f", {bytes_text(moved.done_bytes)} copied" if moved.done_bytes else ""
    note(f"{what}: done after {took:.0f} s{size}")


def _look(
    boom: Client,
    ended: Callable[[ClusterDescribed], bool],
    concerned: Callable[[ClusterDescribed], list[QueueMoveState]],
    moved: MoveProgress,
) -> list[str] | None:
    """Return None if it has ended, else why nothing moves, as far as that is so."""
    try:
        described = boom.admin.describe_cluster()
        moves = concerned(described)
        moved.follow(moves)
        if ended(described):
            return None
    except RetryableError as error:
        return [f"no answer now: {error}"]
    # The planner's reasons count only where nothing is under way though something should be.
    held_up = not moves and described.planner.state in ("waiting", "stalled")
    return described.planner.reasons[:1] if held_up else moved.stuck
