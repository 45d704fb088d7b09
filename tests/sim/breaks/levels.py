"""The rule M7 taken out of the real code; as `queues.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logboom.metadata import name_server, proposal_checks
from logboom.metadata.duties import feature_levels
from logboom.metadata.state import state_machine

if TYPE_CHECKING:
    from tests.sim.breaks.queues import Patch


def levels_are_not_minded(patch: Patch) -> None:
    """M7: a leader puts into the log what older name servers cannot read."""
    for module in (name_server, proposal_checks):
        patch.setattr(module, "level_of", lambda _command: 0)


def nobody_hinders_an_upgrade(patch: Patch) -> None:
    """M7: the level is raised while older nodes are about."""
    patch.setattr(feature_levels, "_hinders", lambda _node, _features, _removal: "")


def older_nodes_go_on(patch: Patch) -> None:
    """M7: a name server goes on beyond the level that it can read."""
    patch.setattr(state_machine, "_check_level", lambda _level: None)
