"""The lease counts from sending, and ends when the broker is fenced (Q11)."""

from __future__ import annotations

from logboom.nodes.cluster.lease import Lease


def test_no_grant_no_lease() -> None:
    assert not Lease().holds(0.0)


def test_it_lasts_from_the_sending_of_what_was_granted() -> None:
    lease = Lease()
    lease.granted(10.0, 2_000, -1)
    assert lease.holds(11.999)
    assert not lease.holds(12.0)


def test_a_late_answer_to_an_older_heartbeat_never_shortens_it() -> None:
    lease = Lease()
    lease.granted(10.0, 2_000, -1)
    lease.granted(9.0, 2_000, -1)
    assert lease.holds(11.5)


def test_fencing_ends_it_at_once() -> None:
    lease = Lease()
    lease.granted(10.0, 2_000, -1)
    lease.end()
    assert not lease.holds(10.1)


def test_a_grant_under_metadata_not_known_here_counts_only_once_it_is() -> None:
    """Else a broker whose WATCH hangs keeps the lease over what others lead by now."""
    lease = Lease()
    lease.learned(4)
    lease.granted(10.0, 2_000, 5)
    assert not lease.holds(10.1)
    lease.granted(11.0, 2_000, 7)
    lease.learned(6)
    assert lease.holds(11.9)
    assert not lease.holds(12.1)
    lease.learned(7)
    assert lease.holds(12.1)


def test_who_asks_to_be_relieved_has_no_lease_until_registered_anew() -> None:
    lease = Lease()
    lease.granted(10.0, 2_000, -1)
    lease.give_up()
    lease.granted(10.5, 2_000, -1)
    assert not lease.holds(10.6)
    lease.end()
    lease.granted(10.7, 2_000, -1)
    assert lease.holds(10.8)
