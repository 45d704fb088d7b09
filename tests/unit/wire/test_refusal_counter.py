"""Refusals are told at once, and then once a second with their number."""

from logboom.wire.refusal_counter import MAX_KEYS, MAX_TOLD_PER_S, RefusalCounter


class Told(list[tuple[str | None, int]]):
    """What a counter told."""

    def __init__(self) -> None:
        self.counter = RefusalCounter[str, float](lambda key, _, count: self.append((key, count)))

    def take(self) -> list[tuple[str | None, int]]:
        told = list(self)
        self.clear()
        return told


def test_the_first_is_told_at_once_and_the_others_once_a_second() -> None:
    told = Told()
    for at in range(1_000):
        told.counter.add("a", 0, 10 + at / 1_000)
    assert told.take() == [("a", 1)]
    told.counter.tick(11.0)
    assert told.take() == [("a", 999)]


def test_each_key_is_told_by_itself() -> None:
    told = Told()
    for key in "abab":
        told.counter.add(key, 0, 1.0)
    told.counter.tick(2.5)
    assert told.take() == [("a", 1), ("b", 1), ("a", 1), ("b", 1)]


def test_who_is_quiet_is_forgotten_and_told_at_once_again() -> None:
    told = Told()
    told.counter.add("a", 0, 1.0)
    told.counter.tick(2.0)
    assert len(told.counter) == 0
    told.counter.add("a", 0, 2.0)
    assert told.take() == [("a", 1), ("a", 1)]


def test_many_keys_are_told_as_one_number() -> None:
    told = Told()
    for at in range(2 * MAX_KEYS):
        told.counter.add(f"{at}", 0, 1.0)
    assert len(told.take()) == MAX_TOLD_PER_S
    told.counter.tick(2.0)
    assert told.take() == [(None, 2 * MAX_KEYS - MAX_TOLD_PER_S)]


def test_nothing_is_lost_and_no_second_has_many_lines() -> None:
    told, added = Told(), 0
    for second in range(10):
        for at in range(500):
            told.counter.add(f"{at % 50}", 0, second + at / 500)
            added += 1
        assert len(told) <= (second + 1) * (MAX_TOLD_PER_S + 1)
    for second in range(10, 14):
        told.counter.tick(float(second))
    assert sum(count for _, count in told) == added


def test_the_details_are_those_of_the_last() -> None:
    told: list[tuple[str | None, str | None, int]] = []
    counter = RefusalCounter[str, str](lambda key, said, count: told.append((key, said, count)))
    for said in ("first", "second", "third"):
        counter.add("a", said, 1.0)
    counter.tick(2.0)
    assert told == [("a", "first", 1), ("a", "third", 2)]
