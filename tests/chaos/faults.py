"""All faults by name, in the order in which a run strikes with each once."""

from __future__ import annotations

from typing import Final

from tests.chaos import (
    link_faults,
    machine_faults,
    operation_faults,
    operator_faults,
    process_faults,
)
from tests.chaos.catalogue import Fault

FAULTS: Final = {
    value.name: value
    for module in (process_faults, link_faults, machine_faults, operator_faults, operation_faults)
    for value in vars(module).values()
    if isinstance(value, Fault)
}

OPERATIONS: Final = ("roll", "resize", "roll")
"""What operators do to a cluster at work: the run of `--operations`."""

__all__ = ["FAULTS", "OPERATIONS", "Fault"]
