"""The client for threads is what its generator makes of the client for asyncio."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
GENERATOR = Path("client/generate_blocking.py")
PACKAGE = Path("client/logboom/client")


def generate(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the generator in a tree."""
    command = [sys.executable, str(root / GENERATOR), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_client_for_threads_is_up_to_date() -> None:
    done = generate(ROOT, "--check")
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


def test_a_module_that_is_out_of_date_is_named_and_written(tmp_path: Path) -> None:
    shutil.copytree(ROOT / PACKAGE, tmp_path / PACKAGE)
    for name in (GENERATOR, Path("pyproject.toml")):
        shutil.copy(ROOT / name, tmp_path / name)
    edited = tmp_path / PACKAGE / "consumer.py"
    text = edited.read_text()
    edited.write_text(text.replace("def close", "def end"))
    done = generate(tmp_path, "--check")
    assert done.returncode == 1
    assert "consumer.py" in done.stdout
    assert "def end" in edited.read_text()
    assert generate(tmp_path).returncode == 0
    assert edited.read_text() == text


def test_nothing_asynchronous_is_left() -> None:
    generated = [
        path
        for path in (ROOT / PACKAGE).glob("*.py")
        if path.read_text().startswith("# Generated from aio/")
    ]
    assert len(generated) > 10
    for path in generated:
        text = path.read_text()
        for word in ("async ", "await ", "asyncio", "logboom.client.aio", "loop"):
            assert word not in text, f"{path.name}: {word}"
