"""The walls of the house: which part may import what, and where the outside world may be touched.

Cores are pure (docs/ARCHITECTURE.md).  Sockets, disks, clocks, threads and randomness are met only
in the thin skins listed here, so that a whole cluster can run in one process from one seed.
"""

import ast
import re
import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

MAY_IMPORT = {
    "wire": set[str](),
    "metadata": {"wire"},
    "nodes": {"wire"},
    "client": {"wire"},
    "deploy": {"client", "metadata", "nodes", "wire"},
    "pipeline": {"client", "wire"},
    "backup": {"client", "wire"},
    "console": {"client", "wire"},
    "cli": {"backup", "client", "console", "deploy", "metadata", "nodes", "pipeline", "wire"},
}
"""Portion → the other portions that it may import."""

BINDINGS = {"pysyncobj", "rocksdict", "zmq"}
"""Packages that exactly one module per portion may import."""

CORE_PORTIONS = {"wire", "metadata", "nodes", "client", "pipeline", "backup", "console"}
"""The portions whose modules are cores unless they are listed as skins."""

SKINS: dict[str, set[str]] = {
    "console": {
        "cluster_source",
        "console_audit",
        "console_jobs",
        "consumer_sampler",
        "exporter.cluster_sampler",
        "exporter.exporter_server",
        "exporter.scrape_app",
        "http_listener",
        "server",
        "sign_in",
        "viewers_file",
        "web_app",
    },
    "backup": {"backup_writer", "object_store", "restore"},
    "client": {
        "admin",
        "admin_access",
        "admin_subscriptions",
        "aio.admin",
        "aio.admin_access",
        "aio.admin_subscriptions",
        "aio.app",
        "aio.app_base",
        "aio.bridge",
        "aio.client",
        "aio.consumer",
        "aio.dead_letter_admin",
        "aio.futures",
        "aio.group_consumer",
        "aio.lookout",
        "aio.producer",
        "aio.producer_base",
        "aio.push_consumer",
        "aio.positioned_reader",
        "aio.range_reader",
        "aio.reader",
        "aio.subscription_consumer",
        "aio.transaction",
        "aio.transactional_sender",
        "app",
        "app_base",
        "bridge",
        "client",
        "cluster_search",
        "consumer",
        "dead_letter_admin",
        "futures",
        "group_consumer",
        "retry_publisher",
        "groups.offsets_file",
        "io_thread",
        "lookout",
        "producer",
        "producer_base",
        "push_consumer",
        "positioned_reader",
        "range_reader",
        "reader",
        "subscription_consumer",
        "tracing.consumer_tracer",
        "tracing.loading",
        "tracing.producer_tracer",
        "transaction",
        "transactional_sender",
    },
    "metadata": {"raft.journal", "server"},
    "nodes": {
        "body_worker",
        "disk.committer",
        "disk.data_folder",
        "disk.journal_files",
        "salvage.store_recovery",
        "salvage.store_files",
        "server",
        "disk.rocks_storage",
    },
    "pipeline": {
        "batch_reader",
        "clients",
        "group_commit_listener",
        "jobs.archive",
        "jobs.replay",
        "jobs.publishing",
        "jobs.histories",
        "jobs.enrich",
        "jobs.dedup",
        "jobs.dead_letters",
        "jobs.compact",
        "jobs.checkpoints",
        "jobs.latency",
        "jobs.job_runs",
        "jobs.window",
        "partition_reader",
        "spark_session",
        "sink",
        "sink_delivery",
        "joined_batches",
        "data_source",
        "stream_reader",
        "updates",
        "worker_daemon",
    },
    "wire": {
        "accepted_connections",
        "audit_file",
        "cluster_keys",
        "credentials_file",
        "listener_gate",
        "manifest_file",
        "node_pages",
        "packet_filters",
        "page_server",
        "private_files",
        "process_figures",
        "secret_files",
        "snapshot_desk",
        "sockets",
        "tls_files",
    },
}
"""Portion → modules that may touch the outside world.  No core imports one of them."""

OUTSIDE = {
    "asyncio",
    "concurrent",
    "multiprocessing",
    "os",
    "pathlib",
    "queue",
    "secrets",
    "select",
    "shutil",
    "signal",
    "socket",
    "ssl",
    "subprocess",
    "tempfile",
    "threading",
    "time",
    "uuid",
    "rocksdict",
    "zmq",
}
"""What a core may not import.  It gets the time and a random.Random as parameters.  PySyncObj is
not here: behind our wrap it has neither sockets nor clock, and runs in the simulation too."""

HARMLESS = {"threading.local"}
"""What a core may use all the same: it starts no thread and waits for none."""

VAGUE_NAMES = {"common", "helpers", "managers", "misc", "utils"}
"""Module names that say nothing of what is inside."""


ROOMS: dict[str, str] = {
    "wire": """
        backoff base connection_limits endpoints errors event_table group_view hashing http_connections log_levels metric_table names packet_filters private_files process_figures refusal_counter server_keys stats turn_pace user_marks
        access compression exposition group_commands group_owners page_server key_pair listeners log_format settings subscription_messages
        authenticator connection_info copy_receipts credentials features group_messages head operation_commands operation_messages owner_proofs secret_files sight snapshot_desk survey_messages
        packing validation
        cursor_deltas rocksdb_log transactions unpacking
        columns manifest_file message_sizes parking view
        backup_messages batch commands filters group_routes restart_check routes told_endpoints
        arrow_batches health messages name_servers
        access_requirements config_requests frames hello internal_topics node_requirements
        actor authorizer zap_requests
        acceptor audit_log event_log peer_routes session unfinished_messages
        accepted_connections audit_file auditor cluster_keys connection_requests listener_gate quotas session_table tls_files
        command_queue node_pages sockets
        credentials_file
    """,
    "metadata": """
        allocation config log_time raft tables
        access allocate broker_claims hidden_topics planning proposal_checks
        groups
        transactions watch
        state
        duties
        name_server
        server
    """,
    "nodes": """
        body_worker config log opened_bytes request_times
        disk turn
        cluster quotas replica rights_review
        broker_context
        compaction
        replication salvage
        requests
        groups parking replica_roles
        controlled_shutdown load_reports maintenance subscriptions transactions
        copy_signer settlement stats_handler survey_handler
        broker_parts
        broker
        server
    """,
    "client": """
        argument_checks cluster_search core_context producer_options promise push_options resource written_values
        calls move_plans move_progress send_options
        balance_report cluster delays
        results send
        flows futures
        fetch
        groups
        group_arguments group_options group_ownership push subscriptions transactions
        admin_flows core subscription_options tracing typed_values
        checks io_thread subscribers
        bridge
        admin_access admin_subscriptions lookout range_reader reader transaction transactional_sender
        admin positioned_reader producer_base
        consumer producer
        dead_letter_admin retry_publisher
        group_consumer push_consumer subscription_consumer
        client
        app_base
        app
        aio
    """,
}
"""Portion → its rooms (folders and top-level modules), the lowest floor first.  A room imports only
from lower floors, type imports included, so that nobody has to read upwards."""

ING = {"EndFilling", "Parking", "Ping", "Setting"}
"""Public class names in -ing that are nouns, or commands that end with one."""

MODULES_OF_EACH = {"__init__", "__main__", "app", "config", "server"}
"""Module names that occur more than once: one for each portion."""

BARE = {"ATTEMPT", "AWAY", "MOST", "PAUSE", "PERIOD", "ROOM"}
"""Names of constants that lack their noun or their unit."""


@cache
def modules(portion: str) -> dict[str, str]:
    """The source of each module of a portion by its dotted name below the portion."""
    top = ROOT / portion / "logboom" / portion
    found = {}
    for path in sorted(top.rglob("*.py")):
        parts = path.relative_to(top).with_suffix("").parts
        found[".".join(parts)] = path.read_text(encoding="utf-8")
    return found


Seen = ast.Import | ast.ImportFrom | ast.ClassDef | ast.Attribute | ast.Call
"""The parts of a source that tests here look at."""


@cache
def seen_parts(source: str) -> list[Seen]:
    """What is looked at in a source, nested parts too; most sources are asked for many times."""
    return [node for node in ast.walk(ast.parse(source)) if isinstance(node, Seen)]


@cache
def imports(source: str, package: str = "") -> frozenset[str]:
    """Every dotted name that a source imports; `from a import b` is a.b."""
    found: set[str] = set()
    for node in seen_parts(source):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*parents, base] if base else parents)
            found.update(f"{base}.{alias.name}" for alias in node.names)
    return frozenset(found)


def dotted(node: ast.AST) -> str:
    """A name with its attributes, as written; what else they are taken from is left out."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def package_of(portion: str, module: str) -> str:
    """The package that a module's relative imports start from."""
    return ".".join(["logboom", portion, *module.split(".")[:-1]])


def foreign_portions(portion: str, source: str) -> set[str]:
    """The portions that a source imports and its own portion may not."""
    used = {
        name.split(".")[1] for name in imports(source) if re.match(r"logboom\.\w", name) is not None
    }
    return used - MAY_IMPORT[portion] - {portion, "__version__"}


def outside_uses(source: str) -> list[str]:
    """What in a core's source reaches outside: imports, open(), wall clocks, global randomness."""
    used = set(imports(source))
    attributes = {dotted(node) for node in seen_parts(source) if isinstance(node, ast.Attribute)}
    if {name for name in attributes if name.startswith("threading.")} <= HARMLESS:
        used.discard("threading")
    found = sorted({name.split(".")[0] for name in used - HARMLESS} & OUTSIDE)
    for node in seen_parts(source):
        if not isinstance(node, ast.Call):
            continue
        called = dotted(node.func)
        # A core may build or be given a random.Random; the module's own functions share one
        # hidden generator, which no seed of ours reaches.
        if re.search(
            r"^open$|^input$|\bdate(time)?\.(now|utcnow|today)$|^random\.(?!Random$)\w+$", called
        ):
            found.append(called)
    found += sorted(
        name for name in used if name.startswith("random.") and name.split(".")[1] != "Random"
    )
    return found


def skins_imported(portion: str, module: str, source: str) -> set[str]:
    """The skins of its own portion that a module imports."""
    used = imports(source, package_of(portion, module))
    return {
        skin
        for skin in SKINS[portion] - {module}
        if any(f"{name}.".startswith(f"logboom.{portion}.{skin}.") for name in used)
    }


def is_skin(portion: str, module: str) -> bool:
    """Whether a module may touch the outside; packages' front doors re-export skins."""
    return module in SKINS[portion] or module.split(".")[-1] in {"__init__", "__main__"}


def unexplained(source: str) -> list[str]:
    """The lines that silence a checker without a code and a reason behind it."""
    return [
        line.strip()
        for line in source.splitlines()
        if re.search(r"#\s*(type:\s*ignore|noqa)", line)
        and not re.search(
            r"(ignore\[[\w, -]+\]|noqa:\s*[A-Z]+\d+(,\s*[A-Z]+\d+)*)\s*[#:-]\s*\w", line
        )
    ]


def uncommented(source: str) -> list[str]:
    """The sleeps and broad excepts without a comment on the line or directly above it."""
    lines = source.splitlines()
    return [
        line.strip()
        for above, line in zip(["", *lines], lines, strict=False)
        if re.search(r"time\.sleep\(|except (Base)?Exception", line)
        and "  # " not in line
        and not above.lstrip().startswith("# ")
    ]


def module_graph(portion: str, found: dict[str, str]) -> dict[str, set[str]]:
    """Each module → the modules of its portion that it imports, also for types alone."""
    prefix = f"logboom.{portion}."
    graph: dict[str, set[str]] = {}
    for module, source in found.items():
        graph[module] = set()
        for name in imports(source, package_of(portion, module)):
            inner = name.removeprefix(prefix) if name.startswith(prefix) else ""
            while inner and inner not in found and f"{inner}.__init__" not in found:
                inner = inner.rpartition(".")[0]
            if inner:
                graph[module].add(inner if inner in found else f"{inner}.__init__")
        graph[module].discard(module)
    return graph


def cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """The groups of nodes that reach each other."""
    reached: dict[str, set[str]] = {}
    for start in graph:
        seen: set[str] = set()
        waiting = [start]
        while waiting:
            for other in graph.get(waiting.pop(), set()) - seen:
                seen.add(other)
                waiting.append(other)
        reached[start] = seen
    in_cycles = {
        frozenset(other for other in reached[node] if node in reached.get(other, set()))
        for node in graph
        if node in reached[node]
    }
    return sorted(sorted(cycle) for cycle in in_cycles)


def room_graph(graph: dict[str, set[str]]) -> dict[str, set[str]]:
    """The imports between rooms; the front doors of portions belong to none."""
    rooms: dict[str, set[str]] = {}
    for module, used in graph.items():
        room = module.split(".")[0]
        if room != "__init__":
            others = {other.split(".")[0] for other in used} - {room, "__init__"}
            rooms.setdefault(room, set()).update(others)
    return rooms


def upward_imports(rooms: dict[str, set[str]], table: str) -> list[str]:
    """The imports of a room from its own floor or a higher one, the rooms without a floor, and the
    names in the table that are no rooms."""
    floors = {
        room: number
        for number, line in enumerate(table.strip().splitlines())
        for room in line.split()
    }
    found = [f"{room} has no floor" for room in sorted(set(rooms) - set(floors))]
    found += [f"{room} is no room" for room in sorted(set(floors) - set(rooms))]
    found += [
        f"{room} imports {other}"
        for room in sorted(set(rooms) & set(floors))
        for other in sorted(rooms[room] & set(floors))
        if floors[other] >= floors[room]
    ]
    return found


def public_classes(sources: dict[str, str]) -> dict[str, set[str]]:
    """Each public class name, nested ones too → where it is defined; asyncio twins count as one."""
    found: dict[str, set[str]] = {}
    for module, source in sources.items():
        for node in seen_parts(source):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found.setdefault(node.name, set()).add(module.replace(".aio.", "."))
    return found


def product_sources() -> dict[str, str]:
    """The source of each module, those of the benchmarks and the demo included, by its dotted name."""
    found = {
        f"{portion}.{name}": source
        for portion in MAY_IMPORT
        for name, source in modules(portion).items()
    }
    for folder in ("bench", "demo"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            found[f"{folder}.{path.stem}"] = path.read_text(encoding="utf-8")
    return found


def bare_constants(source: str) -> list[str]:
    """The constants of a module whose name says neither what they bound nor in which unit."""
    if not re.search(rf"\b({'|'.join(BARE)})\b", source):
        return []  # There is nothing to parse: no such name is anywhere in it.
    return [
        name.id
        for node in ast.parse(source).body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for name in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(name, ast.Name) and name.id in BARE
    ]


@pytest.mark.parametrize("portion", MAY_IMPORT)
def test_a_portion_imports_only_what_it_may(portion: str) -> None:
    crossed = {
        name: foreign
        for name, source in modules(portion).items()
        if (foreign := foreign_portions(portion, source))
    }
    assert crossed == {}, "the table of portions in docs/ARCHITECTURE.md forbids these"


@pytest.mark.parametrize("binding", sorted(BINDINGS))
@pytest.mark.parametrize("portion", MAY_IMPORT)
def test_a_binding_is_imported_by_one_module_of_a_portion(portion: str, binding: str) -> None:
    users = [
        name
        for name, source in modules(portion).items()
        if binding in {used.split(".")[0] for used in imports(source)}
    ]
    assert len(users) <= 1, f"{binding} goes behind one of these modules"


@pytest.mark.parametrize("portion", sorted(CORE_PORTIONS))
def test_cores_do_not_touch_the_outside_world(portion: str) -> None:
    touched = {
        name: uses
        for name, source in modules(portion).items()
        if not is_skin(portion, name) and (uses := outside_uses(source))
    }
    assert touched == {}, "take it as a parameter, or list the module in SKINS if it is a skin"


@pytest.mark.parametrize("portion", sorted(CORE_PORTIONS))
def test_cores_do_not_import_skins(portion: str) -> None:
    crossed = {
        name: skins
        for name, source in modules(portion).items()
        if not is_skin(portion, name) and (skins := skins_imported(portion, name, source))
    }
    assert crossed == {}


@pytest.mark.parametrize("portion", sorted(CORE_PORTIONS))
def test_every_skin_listed_exists_and_touches_the_outside(portion: str) -> None:
    found = modules(portion)
    assert SKINS[portion] <= set(found)
    for skin in sorted(SKINS[portion]):
        source = found[skin]
        assert outside_uses(source) or skins_imported(portion, skin, source), (
            f"{portion} {skin} is a core: take it off the list"
        )


def test_every_top_folder_with_a_portion_has_its_walls() -> None:
    assert {path.parent.name for path in ROOT.glob("*/logboom")} == set(MAY_IMPORT)


OF_THE_WHOLE = {"wire": {"__init__.py", "py.typed"}, "cli": {"__main__.py"}}
"""Portion → the files of `logboom` itself, beside the portion's own folder."""


@pytest.mark.parametrize("portion", MAY_IMPORT)
def test_a_portion_is_typed_and_the_package_has_one_init(portion: str) -> None:
    package = ROOT / portion / "logboom"
    assert (package / portion / "py.typed").is_file()
    # A second `__init__.py` would be found or not, by the order of sys.path.
    found = {path.name for path in package.iterdir() if path.name != "__pycache__"}
    assert found == {portion} | OF_THE_WHOLE.get(portion, set())


@pytest.mark.parametrize("portion", MAY_IMPORT)
def test_every_folder_of_modules_is_a_package(portion: str) -> None:
    # Namespace packages are not found in a zip that holds no entries for its folders.
    folders = {path.parent for path in (ROOT / portion / "logboom" / portion).rglob("*.py")}
    assert [folder for folder in folders if not (folder / "__init__.py").is_file()] == []


def test_pyproject_names_every_portion() -> None:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    build = config["tool"]["hatch"]["build"]
    folders = {f"{portion}/logboom" for portion in MAY_IMPORT}
    assert set(build["dev-mode-dirs"]) == set(MAY_IMPORT)
    assert set(build["targets"]["wheel"]["packages"]) == folders | {"pipeline/pyspark_logboom"}
    assert set(config["tool"]["mypy"]["mypy_path"].split(":")) == set(MAY_IMPORT)
    assert folders <= set(config["tool"]["ruff"]["namespace-packages"])


def test_module_names_say_what_is_inside() -> None:
    named = [
        f"{portion} {name}"
        for portion in MAY_IMPORT
        for name in modules(portion)
        if VAGUE_NAMES & set(name.split("."))
    ]
    assert named == []


def found_in_sources(look: Callable[[str], list[str]]) -> dict[str, list[str]]:
    """What `look` finds in each source of ours, this one left out: it names what is forbidden."""
    return {
        str(path.relative_to(ROOT)): lines
        for folder in (*MAY_IMPORT, "bench", "demo", "tests")
        for path in sorted((ROOT / folder).rglob("*.py"))
        if path != Path(__file__) and (lines := look(path.read_text(encoding="utf-8")))
    }


def test_a_sleep_and_a_broad_except_have_their_reason() -> None:
    found = found_in_sources(uncommented)
    assert found == {}, "say above it what it waits for, or why nothing narrower will do"


def test_a_silenced_checker_has_its_reason() -> None:
    found = found_in_sources(unexplained)
    assert found == {}, "write the reason behind it: `# type: ignore[code]  # why`"


@pytest.mark.parametrize("portion", MAY_IMPORT)
def test_modules_and_rooms_do_not_import_in_circles(portion: str) -> None:
    graph = module_graph(portion, modules(portion))
    graph.pop("__init__", None)
    assert cycles(graph) == []
    assert cycles(room_graph(graph)) == []


@pytest.mark.parametrize("portion", ROOMS)
def test_rooms_import_only_from_lower_floors(portion: str) -> None:
    rooms = room_graph(module_graph(portion, modules(portion)))
    assert upward_imports(rooms, ROOMS[portion]) == []


def test_a_public_class_name_has_one_meaning() -> None:
    found = public_classes(product_sources())
    assert {name: sorted(where) for name, where in found.items() if len(where) > 1} == {}
    assert [name for name in found if name.endswith("ing") and name not in ING] == []


def test_a_module_name_occurs_once() -> None:
    places: dict[str, set[str]] = {}
    for portion in MAY_IMPORT:
        for module in modules(portion):
            name = module.rpartition(".")[2]
            if name not in MODULES_OF_EACH and not name.endswith("_commands"):
                places.setdefault(name, set()).add(f"{portion}.{module}".replace(".aio.", "."))
    assert {name: sorted(where) for name, where in places.items() if len(where) > 1} == {}


def test_a_constant_names_its_bound_and_its_unit() -> None:
    found = found_in_sources(bare_constants)
    assert found == {}, "say what it bounds and in which unit: MAX_RETRIES, SCAN_INTERVAL_S"


# The walls themselves must stand: each is shown something that it has to stop.


@pytest.mark.parametrize(
    ("portion", "source", "foreign"),
    [
        ("wire", "import logboom.client", {"client"}),
        ("nodes", "from logboom.metadata.state.state_machine import State", {"metadata"}),
        ("nodes", "from logboom import metadata", {"metadata"}),
        ("deploy", "def go() -> None:\n    from logboom.cli.app import main", {"cli"}),
        ("deploy", "from logboom.client import connect", set[str]()),
        ("wire", "from logboom.wire.errors import LogboomError", set[str]()),
        ("client", "import msgspec", set[str]()),
    ],
)
def test_foreign_portions_are_seen(portion: str, source: str, foreign: set[str]) -> None:
    assert foreign_portions(portion, source) == foreign


@pytest.mark.parametrize(
    ("source", "uses"),
    [
        ("import time", ["time"]),
        ("from time import monotonic", ["time"]),
        ("def late() -> None:\n    import time", ["time"]),
        ("import threading\nx = threading.Lock()", ["threading"]),
        ("from threading import Lock", ["threading"]),
        ("import threading\nx = threading.local()", []),
        ("from threading import local", []),
        ("import zmq.asyncio", ["zmq"]),
        ("data = open('f').read()", ["open"]),
        ("at = datetime.datetime.now()", ["datetime.datetime.now"]),
        ("import random\nx = random.randrange(3)", ["random.randrange"]),
        ("from random import choice", ["random.choice"]),
        ("from random import Random\nx = Random(7).random()", []),
        ("import random\ndef draw(rng: random.Random) -> float:\n    return rng.random()", []),
        ("import heapq\nx = self.open()", []),
    ],
)
def test_outside_uses_are_seen(source: str, uses: list[str]) -> None:
    assert outside_uses(source) == uses


@pytest.mark.parametrize(
    ("module", "source", "skins"),
    [
        ("view", "from logboom.wire import sockets", {"sockets"}),
        ("view", "from logboom.wire.sockets import Sockets", {"sockets"}),
        ("view", "import logboom.wire.sockets", {"sockets"}),
        ("view", "from . import sockets", {"sockets"}),
        ("view", "from .sockets import Sockets", {"sockets"}),
        ("inner.view", "from ..sockets import Sockets", {"sockets"}),
        ("inner.view", "from .sockets import Sockets", set[str]()),
        ("view", "from logboom.wire.sockets_of_others import x", set[str]()),
    ],
)
def test_imports_of_skins_are_seen(module: str, source: str, skins: set[str]) -> None:
    assert skins_imported("wire", module, source) == skins


@pytest.mark.parametrize(
    ("line", "stopped"),
    [
        ("x = f()  # type: ignore", True),
        ("x = f()  # type: ignore[arg-type]", True),
        ("x = f()  # noqa", True),
        ("x = f()  # noqa: S301", True),
        ("x = f()  # type: ignore[arg-type]  # the stub lacks this overload", False),
        ("x = f()  # noqa: SLF001 - PySyncObj has no public name for it", False),
        ("x = f()  # noqa: SLF001, B010: PySyncObj has no public name for it", False),
    ],
)
def test_silence_without_reason_is_seen(line: str, stopped: bool) -> None:
    assert bool(unexplained(line)) is stopped


@pytest.mark.parametrize(
    ("source", "stopped"),
    [
        ("time.sleep(1)", True),
        ("# why\n\ntime.sleep(1)", True),
        ("try:\n    f()\nexcept Exception:\n    # below\n    pass", True),
        ("except BaseException as error:", True),
        ("    # why\n    time.sleep(1)", False),
        ("time.sleep(1)  # why", False),
        ("# why\nexcept Exception as error:", False),
        ("except ValueError:", False),
    ],
)
def test_a_sleep_or_broad_except_without_reason_is_seen(source: str, stopped: bool) -> None:
    assert bool(uncommented(source)) is stopped


def test_circles_and_upward_imports_are_seen() -> None:
    sources = {
        "low": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .high import top",
        "high.top": "from logboom.nodes.low import x",
        "high.other": "from logboom.nodes.high import top",
        "high.__init__": "",
    }
    graph = module_graph("nodes", sources)
    assert graph["high.other"] == {"high.top"}
    assert cycles(graph) == [["high.top", "low"]]
    assert cycles(room_graph(graph)) == [["high", "low"]]
    assert upward_imports(room_graph(graph), "low\nhigh") == ["low imports high"]
    assert upward_imports(room_graph(graph), "low") == ["high has no floor"]
    assert upward_imports({"low": set()}, "low\nhigh") == ["high is no room"]


def test_names_with_two_meanings_and_bare_constants_are_seen() -> None:
    nested = "def open() -> None:\n    class Queue: ..."
    sources = {"a.x": "class Queue: ...", "b.y": nested, "b.aio.y": "class Queue: ..."}
    assert public_classes(sources) == {"Queue": {"a.x", "b.y"}}
    assert bare_constants("MOST: Final = 3\nMAX_BYTES = 4\nPAUSE = 1.0") == ["MOST", "PAUSE"]
