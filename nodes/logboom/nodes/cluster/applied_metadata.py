"""The version of the metadata up to which this broker acts by it.

Its copy may be newer: the roles of thousands of replicas follow in slices. Replicas that are yet to be
opened do not count, since this broker leads none of them. Whoever concludes from a
version that this broker no longer leads a queue, or that a change of its ISR has an outcome, goes by
this one (see docs/SAFETY.md, Q6 and Q11).
"""

from __future__ import annotations

from logboom.nodes.cluster.lease import Lease


class AppliedMetadata:
    """The version whose roles all open replicas of this broker have."""

    __slots__ = ("_lease", "opens", "version")

    def __init__(self, lease: Lease) -> None:
        self._lease = lease
        self.version = -1
        self.opens = False
        """True while replicas are yet to be opened."""

    def reach(self, version: int) -> None:
        """Note that all roles are those of `version`; grants under it count from now on."""
        self.version = version
        self._lease.learned(version)
