"""RocksDB and the simulated store are one thing to a core: any writes, the same reads."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logboom.nodes.disk.rocks_storage import RocksStorage
from logboom.nodes.log.storage import Storage, WriteSet
from tests.sim.world.storage import SimulatedStorage
from tests.thorough import examples

KEYS = st.binary(min_size=1, max_size=2).map(lambda key: bytes(byte % 6 for byte in key))
OPERATIONS = st.one_of(
    st.tuples(st.just("put"), KEYS, st.binary(max_size=3)),
    st.tuples(st.just("delete"), KEYS, st.just(b"")),
    st.tuples(st.just("delete_range"), KEYS, KEYS),
)
WRITE_SETS = st.lists(st.lists(OPERATIONS, max_size=8), max_size=6)


@pytest.fixture(scope="module")
def rocks() -> Iterator[RocksStorage]:
    with tempfile.TemporaryDirectory() as folder:
        store = RocksStorage(Path(folder), "broker-1")
        yield store
        store.close()


def content(storage: Storage, start: bytes, end: bytes) -> list[tuple[bytes, bytes]]:
    forwards = list(storage.scan("state", start, end))
    assert list(storage.scan("state", start, end, reverse=True)) == forwards[::-1]
    return forwards


@settings(max_examples=examples(60), deadline=None)
@given(WRITE_SETS, st.lists(st.tuples(KEYS, KEYS), max_size=5))
def test_any_writes_read_the_same(
    rocks: RocksStorage,
    write_sets: list[list[tuple[str, bytes, bytes]]],
    ranges: list[tuple[bytes, bytes]],
) -> None:
    simulated = SimulatedStorage("store")
    cleared = WriteSet()
    cleared.delete_range("state", b"", b"\xff")
    rocks.write(cleared)
    for operations in write_sets:
        writes = WriteSet()
        for name, key, value in operations:
            if name == "put":
                writes.put("state", key, value)
            elif name == "delete":
                writes.delete("state", key)
            else:
                writes.delete_range("state", key, value)
        rocks.write(writes)
        simulated.write(writes)
        assert content(rocks, b"", b"\xff") == content(simulated, b"", b"\xff")
    for start, end in ranges:
        assert content(rocks, start, end) == content(simulated, start, end)
        assert rocks.get("state", start) == simulated.get("state", start)
