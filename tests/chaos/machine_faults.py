"""Clocks, power and disks."""

from __future__ import annotations

import random
from pathlib import Path

from tests.chaos.catalogue import Struck, fault
from tests.chaos.rig import SMALL, Rig


@fault()
def clocks_apart(rig: Rig, rng: random.Random) -> Struck:
    """Wall clocks jump, some ahead, some back, by seconds to days."""
    names = rng.sample(rig.cluster.nodes, rng.randint(1, 4))
    ahead = {name: rng.choice([-1, 1]) * 10 ** rng.uniform(0, 5.4) for name in names}
    for name, seconds in ahead.items():
        rig.machine.set_clock(name, seconds)

    def mend() -> None:
        for name in names:
            rig.machine.set_clock(name, 0.0)

    whom = ", ".join(f"{name} {seconds:+.0f} s" for name, seconds in ahead.items())
    return Struck(whom, rng.uniform(2.0, 6.0), mend)


def _lights_out(rig: Rig, names: list[str], rng: random.Random) -> Struck:
    rig.kill(names)
    # Half of the times all of it goes, else a random beginning of each file's end stays.
    torn = rng if rng.random() < 0.5 else None
    lost = sum(rig.machine.cut_power(name, torn) for name in names)
    whom = f"{' '.join(names)}: {lost} bytes lost"
    return Struck(whom, rng.uniform(0.1, 3.0), lambda: rig.start(names))


@fault(combines=False)
def power_cut_leader(rig: Rig, rng: random.Random) -> Struck:
    """A leader loses what it had not synced."""
    return _lights_out(rig, [rig.leader(rng)], rng)


@fault(served=False, combines=False)
def power_cut_all(rig: Rig, rng: random.Random) -> Struck:
    """Every node dies within a moment and loses what it had not synced."""
    names = list(rig.cluster.nodes)
    rng.shuffle(names)
    return _lights_out(rig, names, rng)


@fault(combines=False)
def disk_full(rig: Rig, rng: random.Random) -> Struck:
    """The disk of one broker fills up, below its reserve or to the last byte."""
    wholly = rng.random() < 0.5
    how = rig.disk.fill(wholly=wholly)
    # Below its reserve it takes no more, hands over, and goes on.
    harmed = [SMALL] if wholly and rig.disk.own else []
    return Struck(f"{SMALL}, {how}", rng.uniform(2.0, 5.0), rig.disk.empty, harmed)


def _flip(changed: Path, rng: random.Random) -> Path:
    with changed.open("r+b") as file:
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(changed.stat().st_size)
            file.seek(at)
            byte = file.read(1)[0]
            file.seek(at)
            file.write(bytes([byte ^ (1 << rng.randrange(8))]))
    return changed


@fault(combines=False)
def flipped_bytes(rig: Rig, rng: random.Random) -> Struck:
    """A broker stops, some bytes of its files change, it starts again."""
    name = rng.choice(rig.brokers)
    if rng.random() < 0.5:
        rig.kill([name])
    else:
        rig.take_down(name)
    files = [
        path
        for path in sorted((rig.folder / name / "data" / "db").iterdir())
        if path.suffix in {".blob", ".sst", ".journal"} and path.stat().st_size > 1_000
    ]
    changed = _flip(rng.choice(files), rng)

    def mend() -> None:
        rig.start([name])
        rig.wait_scrubbed()

    return Struck(f"{name}, {changed.name}", 0.2, mend, [name])


@fault(combines=False)
def damaged_name_server(rig: Rig, rng: random.Random) -> Struck:
    """Bytes of a name server's journal or snapshot change: if it notices, it is replaced (R9)."""
    name = rng.choice(rig.servers)
    rig.kill([name])
    data = rig.folder / name / "data"
    files = [
        path for path in sorted((data / "journal").iterdir()) if path.suffix in {".sst", ".log"}
    ]
    files = [path for path in (*files, data / "snapshot") if path.exists()]
    changed = _flip(rng.choice([path for path in files if path.stat().st_size]), rng)
    return Struck(f"{name}, {changed.name}", 0.2, lambda: rig.start([name]), [name])
