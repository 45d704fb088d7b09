"""The command that a broken promise prints runs the very scenario that broke it, with its options."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable
from functools import partial
from importlib import import_module

import pytest

from tests.sim.access_scenario import AccessScenario
from tests.sim.attacks import MIXES, attacked
from tests.sim.delay_scenario import DelayScenario
from tests.sim.group_scenario import GroupScenario
from tests.sim.judges.verdict import Failed, Outcome
from tests.sim.scenario import Scenario
from tests.sim.subscription_scenario import SubscriptionScenario
from tests.sim.table_scenario import TableScenario
from tests.sim.transaction_scenario import TransactionScenario

WITH_ROT = (AccessScenario, DelayScenario, SubscriptionScenario, TableScenario, TransactionScenario)
MADE: dict[str, Callable[[], Scenario]] = {
    "plain": partial(Scenario, 17),
    "rot": partial(Scenario, 17, rot=True),
    "single": partial(Scenario, 17, single="cut going home"),
    "groups": partial(GroupScenario, 17),
    "calm groups": partial(GroupScenario, 17, calm=True),
    **{f"attack {mix}": partial(attacked, 17, mix) for mix in MIXES},
    **{kind.__name__: partial(kind, 17) for kind in WITH_ROT},
    **{f"{kind.__name__} with rot": partial(kind, 17, rot=True) for kind in WITH_ROT},
}


@pytest.mark.parametrize("name", MADE)
def test_the_printed_command_runs_the_same_again(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario = MADE[name]()

    def fail() -> None:
        raise ValueError("it went wrong")

    monkeypatch.setattr(scenario, "come_up", fail)
    with pytest.raises(Failed) as failed:
        scenario.run()
    printed = str(failed.value).rpartition("again: ")[2]
    python, option, module, *arguments = shlex.split(printed)
    assert (python, option) == ("python", "-m")
    again: list[tuple[type[Scenario], int, str]] = []

    def look(self: Scenario) -> Outcome:
        again.append((type(self), self.seed, self.options))
        return Outcome(self.seed, 1.0, "", Counter(), (), {})

    monkeypatch.setattr(Scenario, "run", look)
    assert import_module(module).main(arguments) == 0
    assert again == [(type(scenario), 17, scenario.options)]
    capsys.readouterr()
