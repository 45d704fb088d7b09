"""Writes docs/LOGS.md, the page of all events, from their table.

python wire/generate_log_page.py            # write it
python wire/generate_log_page.py --check    # exit with 1 if it is out of date
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from logboom.wire.event_table import EVENTS, FIELDS, EventSource, LogEvent

PAGE: Final = Path(__file__).parent.parent / "docs" / "LOGS.md"

HEAD: Final = """\
# Logs

Each node writes events to standard error, one a line. Their names and fields stay as they are from release to release;
more may be added. This page is generated from `wire/logboom/wire/event_table.py` by `make generate`.

```sh
logboom node broker --config broker.toml --log json      # or log = "json" in the config file
logboom cluster up --log json                            # the nodes on this machine
logboom dev --log text                                   # without --log: warnings and errors only
```

In text, a line has time (UTC), level, node, event and fields. Values that are more than a word are quoted as in JSON:

```
2026-11-24T14:52:58.123Z INFO name-1 election topic=flights queue=3 leader=broker-2 was=broker-1 epoch=7 in_sync=broker-2,broker-3 cause=broker_fenced
```

With `--log json` each line is one object, whatever the values hold; a traceback is in its field `exception`:

```json
{"time":"2026-11-24T14:52:58.123Z","level":"info","node":"name-1","event":"election","topic":"flights","queue":3,"leader":"broker-2","was":"broker-1","epoch":7,"in_sync":["broker-2","broker-3"],"cause":"broker_fenced","logger":"logboom.metadata.state"}
```

- **Once.** An event is written by the node that knows of it first-hand: what concerns the whole cluster by the leader of
  the Raft group, as it applies the command, and what a node finds at itself by that node. When the Raft group changes its
  leader, the former and the new one may both write what was committed just then.
- **Repetitions are counted.** Of events about the same (the columns *same* below) one is written at once, and the further
  ones as one line a second later, with their number: `repeated=12`. Its time and its fields are those of the last. Of
  different ones at most 100 a second are written, of strangers 20; the others are told as one line with nothing but their
  number. Of one command that changes thousands of queues, such as the fencing of a broker, the number of the further ones is told
  (`more_queues_changed`).
- **Secrets.** No line has a key, public ones included, or the contents of messages. Who may do what, and who was refused,
  is in the [audit log](SECURITY.md#audit-log).
- **Levels.** `logboom config set log_level.metadata.state warning` sets the level of a logger at once, for all nodes or with
  `--node` for one; `logboom config unset` takes it back ([OPERATING.md](OPERATING.md#settings-while-the-cluster-runs)).
- **Reading.** `logboom cluster logs --event 'isr_*' --level warning --follow` shows the logs of all nodes on this machine by
  time, in either form. Last words of a process, such as `logboom: …`, may stand between the lines of a log of text.
"""

SOURCES: Final[tuple[tuple[EventSource, str, str], ...]] = (
    (
        "raft leader",
        "Events of the cluster",
        "The leader of the Raft group writes them as it applies the command, which `cause` names.",
    ),
    ("name server", "Events of a name server", "Each name server writes them about itself."),
    ("broker", "Events of a broker", "Each broker writes them about itself."),
    ("node", "Events of any node", "Each node writes them about itself."),
)


def page() -> str:
    """Return the page."""
    parts = [HEAD]
    for source, title, text in SOURCES:
        parts.append(f"\n## {title}\n\n{text}\n\n")
        parts.append(
            "| event | level | meaning | fields | same | logger |\n|---|---|---|---|---|---|\n"
        )
        parts += (_row(event) for event in EVENTS.values() if event.source == source)
    parts.append(
        "\n## Fields\n\nA field without a value is left out.\n\n| field | meaning |\n|---|---|\n"
    )
    parts += (f"| `{name}` | {FIELDS[name]} |\n" for name in sorted(FIELDS))
    return "".join(parts)


def _row(event: LogEvent) -> str:
    fields, same = (
        ", ".join(f"`{each}`" for each in names) for names in (event.fields, event.same)
    )
    logger = f"`{event.logger}`" if event.logger else ""
    if event.logger.startswith("."):
        logger = f"`nodes{event.logger}`, `metadata{event.logger}`"
        if event.source == "broker":
            logger = f"`nodes{event.logger}`"
    return " | ".join(
        (
            f"| `{event.name}`",
            event.level,
            event.meaning,
            fields,
            ", ".join(_spans(event, same)),
            f"{logger} |\n",
        )
    )


def _spans(event: LogEvent, same: str) -> Iterator[str]:
    """Yield what repetitions go by, and how often they are written if that is not once a second."""
    if same:
        yield same
    if event.every_s > 1:
        yield f"every {event.every_s:.0f} s"


def main() -> int:
    """Write the page, or check it."""
    wanted = page()
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(wanted, encoding="utf-8")
        return 0
    if PAGE.exists() and PAGE.read_text(encoding="utf-8") == wanted:
        return 0
    sys.stderr.write(f"{PAGE} is out of date: make generate\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
