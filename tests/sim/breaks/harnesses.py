"""Who may notice that a rule is broken: simulations, and directed tests.

A harness runs one seed and raises when a promise is broken; `verdict` says which.
"""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Final, TypeAlias

import pytest

from logboom.metadata.raft.raft_config import RaftError
from tests.sim.access_scenario import AccessScenario
from tests.sim.attacks import attacked
from tests.sim.delay_scenario import DelayScenario
from tests.sim.forgery_scenario import ForgeryScenario
from tests.sim.group_scenario import GroupScenario
from tests.sim.judges.verdict import Failed
from tests.sim.loss_scenario import LossScenario
from tests.sim.move_scenario import MoveScenario
from tests.sim.raft_world import BrokenPromiseError, RaftWorld
from tests.sim.recovery_decisions_scenario import RecoveryDecisionsScenario
from tests.sim.recovery_groups_scenario import RecoveryGroupsScenario
from tests.sim.recovery_scenario import RecoveryScenario
from tests.sim.scenario import Scenario
from tests.sim.subscription_scenario import SubscriptionScenario
from tests.sim.transaction_scenario import TransactionScenario
from tests.sim.world.complaints import FALLEN
from tests.sim.world.trace import BrokenProperty


@dataclass(frozen=True, slots=True)
class Cluster:
    """The simulation of whole clusters."""

    attack: str = ""
    rot: bool = False

    def __str__(self) -> str:
        if self.attack:
            return f"cluster, attack “{self.attack}”"
        return "cluster, `--rot`" if self.rot else "cluster"

    def run(self, seed: int) -> None:
        """Raises `Failed` if a promise is broken."""
        if self.attack:
            attacked(seed, self.attack).run()
        else:
            Scenario(seed, rot=self.rot).run()


@dataclass(frozen=True, slots=True)
class Members:
    """The simulation of whole clusters with consumer groups."""

    calm: bool = False

    def __str__(self) -> str:
        return "groups, `--calm`" if self.calm else "groups"

    def run(self, seed: int) -> None:
        """Raises `Failed` if a promise is broken."""
        GroupScenario(seed, calm=self.calm).run()


@dataclass(frozen=True, slots=True)
class Forged:
    """The simulation of whole clusters with groups whose owner epochs somebody invents."""

    def __str__(self) -> str:
        return "groups, forgery"

    def run(self, seed: int) -> None:
        """Raises `Failed` if a promise is broken."""
        ForgeryScenario(seed).run()


@dataclass(frozen=True, slots=True)
class Rights:
    """The simulation of whole clusters with keys, and rights that change."""

    def __str__(self) -> str:
        return "access"

    def run(self, seed: int) -> None:
        """Raises `Failed` if a promise is broken."""
        AccessScenario(seed).run()


@dataclass(frozen=True, slots=True)
class Moving:
    """The simulation of whole clusters whose replicas move."""

    def __str__(self) -> str:
        return "moves"

    def run(self, seed: int) -> None:
        """Raises `Failed` if a promise is broken."""
        MoveScenario(seed).run()


@dataclass(frozen=True, slots=True)
class Losing:
    """The simulation of whole clusters whose queues lose their only copies."""

    def __str__(self) -> str:
        return "losses"

    def run(self, seed: int) -> None:
        """Raises `Failed` if a promise is broken."""
        LossScenario(seed).run()


@dataclass(frozen=True, slots=True)
class Waiting:
    """The simulation of whole clusters with messages that wait for a time."""

    def __str__(self) -> str:
        return "delays"

    def run(self, seed: int) -> None:
        """Raises `Failed` if a promise is broken."""
        DelayScenario(seed).run()


@dataclass(frozen=True, slots=True)
class Deciding:
    """The simulation of whole clusters with transactions."""

    def __str__(self) -> str:
        return "transactions"

    def run(self, seed: int) -> None:
        """Raises `Failed` if a promise is broken."""
        TransactionScenario(seed).run()


@dataclass(frozen=True, slots=True)
class Subscribers:
    """The simulation of whole clusters with subscriptions."""

    def __str__(self) -> str:
        return "subscriptions"

    def run(self, seed: int) -> None:
        """Raises `Failed` if a promise is broken."""
        SubscriptionScenario(seed).run()


@dataclass(frozen=True, slots=True)
class Surviving:
    """The simulation of whole clusters whose name servers are lost but for one."""

    calm: bool = False

    def __str__(self) -> str:
        return "recovery, `--calm`" if self.calm else "recovery"

    def run(self, seed: int) -> None:
        """Raises `Failed` if a promise is broken."""
        RecoveryScenario(seed, calm=self.calm).run()


@dataclass(frozen=True, slots=True)
class SurvivingDecisions:
    """The same with transactions before the loss and after it."""

    def __str__(self) -> str:
        return "recovery, transactions"

    def run(self, seed: int) -> None:
        """Raises `Failed` if a promise is broken."""
        RecoveryDecisionsScenario(seed).run()


@dataclass(frozen=True, slots=True)
class SurvivingGroups:
    """The same with consumer groups."""

    def __str__(self) -> str:
        return "recovery, groups"

    def run(self, seed: int) -> None:
        """Raises `Failed` if a promise is broken."""
        RecoveryGroupsScenario(seed).run()


@dataclass(frozen=True, slots=True)
class Raft:
    """The simulation of the raft group alone."""

    members: int = 3
    changing: bool = False

    def __str__(self) -> str:
        words = [f"raft, {self.members} members"]
        words += ["changing"] if self.changing else []
        return ", ".join(words)

    def run(self, seed: int) -> None:
        """Raises `BrokenPromiseError`, or what the node itself raises."""
        world = RaftWorld(seed, self.members, spare=2 if self.changing else 0)
        world.changing = self.changing
        world.run_until(2.0)
        world.run(12.0)
        world.heal()
        world.check()


@dataclass(frozen=True, slots=True)
class Script:
    """A schedule in which nothing is left to chance; its seed means nothing."""

    play: Callable[[], None]

    def __str__(self) -> str:
        return f"script “{self.play.__name__.replace('_', ' ')}”"

    def run(self, _seed: int) -> None:
        """Raises `BrokenPromiseError` or `BrokenProperty`."""
        self.play()


@dataclass(frozen=True, slots=True)
class Directed:
    """One test function; its seed means nothing."""

    test: str
    """"module:function", below tests/unit."""
    arguments: tuple[object, ...] = ()

    def __str__(self) -> str:
        return f"`{self.test.partition(':')[2]}`"

    def run(self, _seed: int) -> None:
        """Raises `AssertionError` if the test finds wrong what it looks at."""
        module, _, name = self.test.partition(":")
        test = getattr(import_module(f"tests.unit.{module}"), name)
        with tempfile.TemporaryDirectory() as folder:
            wants_folder = "tmp_path" in inspect.signature(test).parameters
            arguments = (Path(folder),) if wants_folder else self.arguments
            try:
                test(*arguments)
            # Anything else is a program that falls over, e.g. over a patch of what has changed since.
            except (AssertionError, pytest.fail.Exception) as error:
                raise AssertionError(f"{name} fails") from error


Harness: TypeAlias = (
    Cluster
    | Members
    | Forged
    | Losing
    | Moving
    | Waiting
    | Deciding
    | Subscribers
    | Rights
    | Surviving
    | SurvivingDecisions
    | SurvivingGroups
    | Raft
    | Script
    | Directed
)
RAFT_PROMISES: Final = {
    "acknowledged on": "what is acknowledged is on a majority's disks",
    "applied twice": "nothing is applied twice",
    " applied b": "one history",
    "restored another": "one history",
    "restored an older": "applied state never goes back",
    "rolled back": "applied state never goes back",
    "two leaders": "one leader per term",
    "leaders after healing": "a healed group agrees",
    " commands and members": "a healed group agrees",
    "acknowledged and lost": "nothing acknowledged is lost",
}
"""What the raft world says → the promise."""


def verdict(harness: Harness, seed: int) -> str:
    """What a harness says of a seed: the broken promise, or ""."""
    try:
        harness.run(seed)
    except Failed as error:
        if not isinstance(error.__cause__, BrokenProperty) or error.promise == FALLEN:
            # A program that falls over has not noticed anything.
            raise
        return error.promise
    except BrokenProperty as error:
        return error.name
    except BrokenPromiseError as error:
        return _raft_promise(error)
    except RaftError as error:
        # A node that ends is no finding, unless what it ended for was found in its state.
        if not isinstance(error.__cause__, BrokenPromiseError):
            raise
        return _raft_promise(error.__cause__)
    except AssertionError:
        if not isinstance(harness, Directed):
            raise
        return "the test fails"
    return ""


def _raft_promise(error: BrokenPromiseError) -> str:
    return next((p for said, p in RAFT_PROMISES.items() if said in str(error)), str(error))
