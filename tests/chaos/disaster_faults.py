"""Disasters, and what operators and clocks do at their worst: the faults of `--disasters`."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from logboom.client import connect
from logboom.deploy.node_client import NodeClient
from logboom.wire.errors import LogboomError, RetryableError, StartError
from tests.chaos.catalogue import Struck, fault
from tests.chaos.links import part
from tests.chaos.rig import TOPIC, WHOLE_S, Rig

# -- a lost majority of the name servers ------------------------------------------------------

LAGS: Final = ("paused", "cut off", "copied back")
"""How a name server comes to lag."""
SENT: Final = 200
"""Messages that a topic gets while the survivor lags."""
ASIDE: Final = "brokers keep the replicas of topics that the name servers have lost"
KNOWN: Final = "messages of topics that the survivor knows stay, each once"


def _nothing() -> None:
    """For what is over once it has struck."""


def _create(rig: Rig, topic: str) -> None:
    with connect(rig.endpoints, timeout_s=WHOLE_S) as boom:
        boom.admin.create_topic(topic, queues=1, replicas=3, retention_ms=-1)


def _send(rig: Rig, topic: str, values: Sequence[bytes]) -> None:
    """Send messages with `acks=all`; each is acknowledged when this returns."""
    with connect(rig.endpoints, timeout_s=WHOLE_S) as boom, boom.producer(acks="all") as producer:
        producer.send_many(topic, [*values], queue=0).result(WHOLE_S)


def _wait_known(rig: Rig, name: str, topic: str) -> None:
    """Wait until a name server knows a topic, and so everything that was decided before it.

    Raises:
        StartError: it does not hear of it.
    """
    endpoint = rig.cluster.endpoint(name)

    def known() -> bool:
        with NodeClient() as asker:
            view = asker.views([endpoint], 1.0, [topic]).get(endpoint)
        return view is not None and any(each.name == topic for each in view.topics)

    if not rig.wait(known, WHOLE_S):
        raise StartError(f"{name} does not hear of {topic}")


def _let_lag(rig: Rig, name: str, how: str) -> Callable[[], None]:
    """Let a name server lag from now on; what is returned ends it and leaves it on its old state."""
    data = rig.folder / name / "data"
    copy = data.with_name("copy")
    if how == "copied back":
        rig.take_down(name)
        shutil.copytree(data, copy)
        rig.start([name])
    elif how == "cut off":
        part(rig.links, [name], rig.others(name))
    else:
        rig.cluster.pause(name)

    def end() -> None:
        rig.kill([name])
        rig.links.heal()
        if copy.exists():
            shutil.rmtree(data)
            copy.rename(data)
            rig.machine.forget(name)

    return end


def _kept_aside(rig: Rig) -> int:
    """Replicas of topics that the name servers do not know, of all brokers."""
    return sum(counters["replicas_aside"] for counters in rig.health.counters().values())


def unlike(sent: Sequence[bytes], read: Sequence[bytes]) -> str:
    """How a queue differs from what was acknowledged of it, in words; "" if it does not."""
    lost, doubled = len(set(sent) - set(read)), len(read) - len(set(read))
    foreign = len(set(read) - set(sent))
    if lost or doubled or foreign:
        return f"{lost} lost, {doubled} doubled, {foreign} never sent"
    return "" if [*sent] == [*read] else "in another order"


def _read(rig: Rig, topic: str) -> list[bytes]:
    found: list[bytes] = []
    with connect(rig.endpoints, timeout_s=WHOLE_S) as boom:
        at, end = boom.admin.offsets(topic)[0]
        while at < end:
            pulled = boom.pull(topic, 0, at, max_messages=1_000)
            found += [bytes(message.value or b"") for message in pulled.messages]
            at = pulled.next_offset
    return found


@fault(combines=False, served=False)
def recover_lagging(rig: Rig, rng: random.Random) -> Struck:
    """All name servers but one are lost, and that one lags: `logboom name-server recover`, then two
    new ones, as OPERATING.md says.

    What it lacks is documented: commits of the group since, and a topic that is created since.
    """
    survivor, how = rng.choice(rig.servers), rng.choice(LAGS)
    lost = [name for name in rig.servers if name != survivor]
    restarted = [name for name in rig.brokers if rng.random() < 0.5] if rng.random() < 0.7 else []
    number = rig.recoveries = rig.recoveries + 1
    known, late = f"known-{number}", f"late-{number}"
    first = [b"known %d" % n for n in range(SENT)]
    more = [b"known %d" % n for n in range(SENT, 2 * SENT)]
    since = time.monotonic()
    _create(rig, known)
    _send(rig, known, first)
    _wait_known(rig, survivor, known)
    aside = _kept_aside(rig)
    end = _let_lag(rig, survivor, how)
    if how == "copied back":
        rig.wait_whole()
    _create(rig, late)
    _send(rig, late, [b"late %d" % n for n in range(SENT)])
    # A producer id, and perhaps an instance epoch, that the survivor never hears of.
    _send(rig, known, more)
    if rng.random() < 0.5:
        rig.kill([broker := rng.choice(rig.brokers)])
        rig.sleep(rng.uniform(0.1, 1.0))
        rig.start([broker])
    rig.sleep(rng.uniform(0.5, 5.0))
    rig.kill(lost)
    end()
    rig.kill(restarted)
    restored = ["--restored"] if how == "copied back" else []
    config = rig.folder / survivor / "node.toml"
    rig.must("name-server", "recover", str(config), *restored, "--yes", cluster=False)
    rig.machine.forget(survivor)
    rig.start([survivor])
    rig.start(restarted)
    rig.renew(lost)
    rig.wait_whole()
    rig.losses.append((since, time.monotonic()))
    last = [b"known %d" % n for n in range(2 * SENT, 3 * SENT)]
    _send(rig, known, last)
    if wrong := unlike([*first, *more, *last], _read(rig, known)):
        rig.account.broken(KNOWN, f"{known}: {wrong}")
    copies = len(rig.brokers)
    if not rig.wait(lambda: _kept_aside(rig) >= aside + copies, WHOLE_S):
        rig.account.broken(ASIDE, f"{late}: {_kept_aside(rig) - aside} of {copies} are there")
    rig.kept_aside += SENT
    whom = f"{survivor} goes on, {how}; restarted: {' '.join(restarted) or 'no broker'}"
    return Struck(whom, 0.0, _nothing)


# -- what operators type ----------------------------------------------------------------------

ODD: Final = (
    "tcp://127.0.0.1:7701",
    "*:7701",
    "0.0.0.0:7701",
    "user@127.0.0.1:7701",
    "ü.example:7701",
    "[::1:7701",
    "[nonsense]:7701",
    "::1:7701",
    "127.0.0.1:99999",
    "127.0.0.1;127.0.0.2:7701",
    "two words:7701",
    ":7701",
    f"{'h' * 300}:7701",
)
"""Endpoints that are none."""
REFUSED: Final = "an odd endpoint is refused in one line"
REFUSED_S: Final = 180.0
"""What takes longer hangs; a refusal takes as long as a process needs to begin."""
_DIAL: Final = """
import sys
from logboom.client import connect
from logboom.wire.errors import LogboomError
with connect(sys.argv[1], timeout_s=5) as boom:
    boom.admin.topics()
"""


def not_refused(code: int | None, said: str) -> str:
    """What is wrong with how a command ended, in words; "" if it refused in one line with the remedy.

    Args:
        code: its exit code; None: it hung.
        said: on its standard error.
    """
    lines = said.strip().splitlines()
    if code is None:
        return "it hangs"
    if code == 0:
        return "it was taken"
    if code < 0:
        return f"it was ended by signal {-code}"
    if len(lines) != 1 or "host:port" not in lines[0]:
        return f"it said {said[-400:]!r}"
    return ""


def last_line(said: str) -> str:
    """The line of a traceback that names the error, or all that was said if there is none."""
    lines = said.strip().splitlines()
    return lines[-1] if lines and lines[0].startswith("Traceback") else said


def _typed(rig: Rig, odd: str, command: Sequence[str], *, traceback: bool = False) -> None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=REFUSED_S, check=False
        )
    except subprocess.TimeoutExpired:
        code, said = None, ""
    else:
        code, said = done.returncode, last_line(done.stderr) if traceback else done.stderr
    if wrong := not_refused(code, said):
        rig.account.broken(REFUSED, f"{odd!r} of {' '.join(command[2:5])}: {wrong}")


@fault(combines=False)
def odd_endpoints(rig: Rig, rng: random.Random) -> Struck:
    """Operators, clients and a broker's file name endpoints that are none: each is refused in one
    line, and no node ends."""
    odd = rng.sample(ODD, 4)
    good = "127.0.0.1:7701"
    add = ["name-server", "add", "name-99"]
    _typed(rig, odd[0], rig.words(*add, odd[0], good))
    _typed(rig, odd[1], rig.words(*add, good, odd[1]))
    _typed(rig, odd[2], [*rig.words("topic", "list", cluster=False), "-s", odd[2]])
    _typed(rig, odd[3], [sys.executable, "-c", _DIAL, odd[3]], traceback=True)
    _typed(rig, odd[3], rig.stranger(odd[3]))
    return Struck(", ".join(each[:40] for each in odd), 1.0, _nothing)


# -- clocks -----------------------------------------------------------------------------------

JUMPS: Final = 4
YEAR_S: Final = 365 * 86_400.0
AGO_MS: Final = 5_000
LOOKUPS: Final = "the start of a queue by time is found, whatever clocks did"


def jumps(rng: random.Random) -> list[float]:
    """Where a clock goes, one after the other: ahead and back by turns, by a second to a year."""
    first = rng.choice([-1, 1])
    return [first * (-1) ** n * YEAR_S ** rng.random() for n in range(JUMPS)]


def _look_up(rig: Rig) -> Mapping[int, str]:
    """Queue → what was wrong with a lookup by time; as producers' clocks are right."""
    wrong: dict[int, str] = {}
    left = set(range(rig.queues))
    since_ms = int(time.time() * 1000) - AGO_MS

    def answered() -> bool:
        try:
            with connect(rig.endpoints, timeout_s=5.0) as boom:
                for queue in sorted(left):
                    offset = boom.admin.offset_for_time(TOPIC, queue, since_ms)
                    if offset < boom.admin.offsets(TOPIC)[queue][1]:
                        found = boom.admin.get_message(TOPIC, queue, offset)
                        if found.timestamp_ms < since_ms:
                            wrong[queue] = f"offset {offset} is of {found.timestamp_ms}"
                    left.discard(queue)
        except RetryableError:
            return False
        return True

    if not rig.wait(answered, WHOLE_S):
        wrong |= dict.fromkeys(left, "no answer")
    return wrong


@fault()
def clock_jumps(rig: Rig, rng: random.Random) -> Struck:
    """The wall clock of one node jumps ahead and back several times, by up to a year, and is right
    again in the end: nobody is without service, and lookups by time find what they must."""
    name = rig.leader(rng) if rng.random() < 0.7 else rig.raft_leader()
    done = jumps(rng)
    for ahead_s in done:
        rig.machine.set_clock(name, ahead_s)
        rig.sleep(rng.uniform(0.2, 1.5))

    def mend() -> None:
        rig.machine.set_clock(name, 0.0)
        for queue, wrong in _look_up(rig).items():
            rig.account.broken(LOOKUPS, f"queue {queue}, once {name} has the right time: {wrong}")

    return Struck(f"{name} {' '.join(f'{each:+.0f}' for each in done)} s", 0.5, mend)


# -- backups ----------------------------------------------------------------------------------

ROUNDS: Final = 2
BACKED_UP: Final = "a backup that ended well is whole, though others are pruned"
BACKUP_S: Final = 300.0


def _back_up(rig: Rig, rng: random.Random, base: str) -> None:
    """Make a backup and prune meanwhile, again and again; then verify the newest one."""
    place = str(rig.backups)
    create = rig.words("backup", "create", place, "--base", base)
    prune = rig.words("backup", "prune", place, "--keep", "1", "--yes", cluster=False)
    verify = rig.words("backup", "verify", place, cluster=False)
    begun = time.monotonic()

    def run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=BACKUP_S, check=False
        )

    with ThreadPoolExecutor(1) as beside:
        creating = beside.submit(run, create)
        while not creating.done():
            pruned = run(prune)
            if pruned.returncode and rig.backed_up_at is not None:
                rig.account.broken(BACKED_UP, f"prune: {pruned.stderr[-400:]}")
            rig.sleep(rng.uniform(0.0, 0.3))
    done = creating.result()
    if done.returncode:
        # Documented: one that began as its base was removed fails, and the same command works.
        begun, done = time.monotonic(), run(create)
    if done.returncode:
        rig.account.broken(BACKED_UP, f"create: {done.stderr[-400:]}")
        return
    rig.backed_up_at = begun
    verified = run(verify)
    if verified.returncode:
        rig.account.broken(BACKED_UP, f"verify: {(verified.stdout + verified.stderr)[-600:]}")


@fault(combines=False)
def prune_during_create(rig: Rig, rng: random.Random) -> Struck:
    """`logboom backup create` while `backup prune` runs again and again; the newest one is verified
    each time, and the last one of all restored at the end of the run (`tests.chaos.backups`)."""
    bases = ["latest", rng.choice(["latest", "none"])]
    try:
        for base in bases:
            _back_up(rig, rng, base)
    except subprocess.TimeoutExpired as error:
        rig.account.broken(BACKED_UP, f"it hangs: {error}")
    except LogboomError as error:
        rig.account.broken(BACKED_UP, str(error))
    return Struck(f"bases {' '.join(bases)}", 0.1, _nothing)
