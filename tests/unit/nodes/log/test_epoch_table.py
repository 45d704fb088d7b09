"""The epoch table: which epoch stands before a position, and where epochs end."""

from __future__ import annotations

from logboom.nodes.log.epoch_table import EpochTable
from logboom.nodes.log.keys import Position

TABLE = [(2, Position(0)), (5, Position(10)), (6, Position(10, 3)), (9, Position(40))]


def test_an_empty_table_knows_nothing() -> None:
    table = EpochTable()
    assert table.last == -1
    assert table.before(Position(7)) == -1
    assert table.floor(9, Position(0)) is None


def test_begin_takes_only_newer_epochs() -> None:
    table = EpochTable(TABLE)
    assert not table.begin(9, Position(50))
    assert not table.begin(3, Position(50))
    assert table.begin(10, Position(50))
    assert table.last == 10


def test_before_is_the_epoch_of_the_last_entry_before_a_position() -> None:
    table = EpochTable(TABLE)
    places = [Position(0), Position(1), Position(10), Position(10, 1), Position(10, 3)]
    assert [table.before(place) for place in places] == [-1, 2, 2, 5, 5]
    assert table.before(Position(11)) == 6
    assert table.before(Position(41)) == 9


def test_floor_is_the_largest_epoch_up_to_one_and_its_end() -> None:
    table = EpochTable(TABLE)
    end = Position(44)
    assert table.floor(1, end) is None
    assert table.floor(4, end) == (2, Position(10))
    assert table.floor(6, end) == (6, Position(40))
    assert table.floor(99, end) == (9, end)


def test_cut_forgets_epochs_that_begin_at_the_end_or_behind() -> None:
    table = EpochTable(TABLE)
    assert not table.cut(Position(41))
    assert table.cut(Position(40))
    assert table.last == 6
    assert table.cut(Position(0))
    assert table.entries == []


def test_prune_keeps_the_epoch_just_before_the_start() -> None:
    table = EpochTable(TABLE)
    assert not table.prune(Position(10))
    assert table.before(Position(10)) == 2
    assert table.prune(Position(40))
    assert table.entries == TABLE[2:]
    assert table.before(Position(40)) == 6
