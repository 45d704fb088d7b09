"""The limits of runs: drawn from the seed, each by itself, and gone when the run has ended."""

from __future__ import annotations

import ast
from collections import Counter
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from logboom.metadata.raft.raft_config import RaftConfig
from logboom.nodes.config import BrokerConfig, check_config
from tests.sim.world.limits import BROKER, CONSTANTS, MOVED, RAFT, Limits

SHIPPED = BrokerConfig(id="broker-1", name_servers=["name-1:7701"])


def module_of(name: str) -> tuple[ModuleType, str]:
    """The module of a constant, and what it is called there."""
    module, _, constant = MOVED.get(name, name).rpartition(".")
    return import_module(module), constant


@pytest.mark.parametrize("name", CONSTANTS)
def test_a_constant_is_looked_up_where_it_is_limited(name: str) -> None:
    """Its module uses it in the body of some function; elsewhere another limit says so."""
    module, constant = module_of(name)
    assert isinstance(getattr(module, constant), int)
    tree = ast.parse(Path(str(module.__file__)).read_text())
    bodies = (each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef))
    used = {
        node.id
        for function in bodies
        for statement in function.body
        for node in ast.walk(statement)
        if isinstance(node, ast.Name)
    }
    assert constant in used


def test_many_seeds_together_have_every_limit_small_and_as_shipped() -> None:
    limits = [Limits(seed) for seed in range(100)]
    small = Counter(
        name for each in limits for name in {**each.settings, **each.raft, **each.constants}
    )
    names = {*BROKER, *RAFT, *CONSTANTS}
    assert {name for name in names if not 10 < small[name] < 90} == set()
    assert {each.settings.get("fetch_bytes") for each in limits} == {None, *BROKER["fetch_bytes"]}
    assert not all(each.constants for each in limits), "some runs are as the program is shipped"


def test_one_seed_has_one_set_of_limits() -> None:
    assert str(Limits(7)) == str(Limits(7))
    assert str(Limits(7)) != str(Limits(9))


def test_a_limit_holds_as_long_as_the_run() -> None:
    before = {name: getattr(*module_of(name)) for name in CONSTANTS}
    seed = next(seed for seed in range(100) if Limits(seed).constants)
    limits = Limits(seed)
    with limits.hold():
        now = {name: getattr(*module_of(name)) for name in limits.constants}
        assert now == limits.constants
    assert {name: getattr(*module_of(name)) for name in CONSTANTS} == before


def test_the_settings_are_such_as_a_node_takes() -> None:
    for seed in range(100):
        limits = Limits(seed)
        check_config(limits.broker(SHIPPED))
        RaftConfig(**limits.raft)
