"""The lease counts from sending, and ends when the broker is fenced (Q11)."""

from __future__ import annotations

from logboom.nodes.lease import Lease


def test_no_grant_no_lease() -> None:
    assert not Lease().holds(0.0)


def test_it_lasts_from_the_sending_of_what_was_granted() -> None:
    lease = Lease()
    lease.granted(10.0, 2_000)
    assert lease.holds(11.999)
    assert not lease.holds(12.0)


def test_a_late_answer_to_an_older_heartbeat_never_shortens_it() -> None:
    lease = Lease()
    lease.granted(10.0, 2_000)
    lease.granted(9.0, 2_000)
    assert lease.holds(11.5)


def test_fencing_ends_it_at_once() -> None:
    lease = Lease()
    lease.granted(10.0, 2_000)
    lease.end()
    assert not lease.holds(10.1)
