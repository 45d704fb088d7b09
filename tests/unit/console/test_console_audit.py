"""The console's audit log: neither strangers nor one viewer push the lines of others out."""

import json
from pathlib import Path

import pytest

from logboom.console.console_audit import ConsoleAudit
from logboom.console.widgets.page_query import FormValues
from logboom.wire.audit_log import MAX_LINE_BYTES, SHARE_BYTES


@pytest.mark.parametrize(
    ("event", "result", "viewer"),
    [
        ("authentication", "WRONG_PASSWORD", "invented-{}"),
        ("authentication", "LOCKED", "invented-{}"),
        ("authentication", "ok", "eve"),
        ("action", "ok", "eve"),
        ("refused", "READ_ONLY", "eve"),
    ],
)
def test_nobody_pushes_the_lines_of_others_out(
    tmp_path: Path, event: str, result: str, viewer: str
) -> None:
    audit = ConsoleAudit(tmp_path)
    none = FormValues()
    for number in range(6_000):
        audit.note(event, viewer.format(number), f"10.0.{number}", "x" * 100, result, none)
    audit.note("action", "alice", "10.1.1.1", "topic.delete", "ok", none)
    audit.close()
    assert audit.path.stat().st_size < SHARE_BYTES + 4 * MAX_LINE_BYTES
    lines = [json.loads(line) for line in audit.path.read_text("utf-8").splitlines()]
    assert sum(line.get("count", 1) for line in lines) == 6_001
    (of_alice,) = [line for line in lines if line.get("user") == "alice"]
    assert of_alice["request"] == "topic.delete"
