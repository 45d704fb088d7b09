"""All faults by name, in the order in which a run strikes with each once."""

from __future__ import annotations

from typing import Final

from tests.chaos import (
    disaster_faults,
    link_faults,
    machine_faults,
    operation_faults,
    operator_faults,
    process_faults,
)
from tests.chaos.catalogue import Fault

FAULTS: Final = {
    value.name: value
    for module in (
        process_faults,
        link_faults,
        machine_faults,
        operator_faults,
        operation_faults,
        disaster_faults,
    )
    for value in vars(module).values()
    if isinstance(value, Fault)
}

OPERATIONS: Final = ("roll", "resize", "roll")
"""What operators do to a cluster at work: the run of `--operations`."""

DISASTERS: Final = tuple(
    value.name for value in vars(disaster_faults).values() if isinstance(value, Fault)
)
"""Lost majorities of name servers, and operators and clocks at their worst: those of `--disasters`."""

__all__ = ["DISASTERS", "FAULTS", "OPERATIONS", "Fault"]
