"""A job whose machines have our dependencies and not us: `spark-submit --py-files` brings the wheel."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable
from pathlib import Path

import pyspark
import pytest

from logboom.client import Client

ROOT = Path(__file__).parent.parent.parent
JOB = """
import sys
from pyspark.sql import SparkSession
from logboom.pipeline import register

servers, topic = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
register(spark)
source = spark.read.format("logboom").options(servers=servers, subscribe=topic)
again = source.load().select("value").write.format("logboom").options(servers=servers, topic=topic)
again.mode("append").save()
print(register.__code__.co_filename, source.load().count(), file=open("found", "w"))
spark.stop()
"""


def bare_python(folder: Path) -> Path:
    """A Python that finds all that is installed here, except for what an editable install names."""
    venv.create(folder, symlinks=True)
    packages = sysconfig.get_path("purelib", vars={"base": str(folder)})
    # A line of a .pth is a folder; the .pth files in it are not looked at.
    (Path(packages) / "ours.pth").write_text(sysconfig.get_path("purelib"))
    return folder / "bin" / "python"


@pytest.mark.thorough
def test_the_wheel_comes_with_the_job(
    servers: str, boom: Client, topic: str, fill: Callable[..., None], tmp_path: Path
) -> None:
    fill(topic, 0, range(5))
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    python = bare_python(tmp_path / "bare")
    without = subprocess.run([python, "-c", "import logboom"], capture_output=True, check=False)
    assert without.returncode == 1
    job = tmp_path / "job.py"
    job.write_text(JOB)
    home = Path(pyspark.__path__[0])
    settings = {"spark.ui.enabled": "false", "spark.driver.memory": "512m"}
    words = [part for each in settings.items() for part in ("--conf", "=".join(each))]
    submit = [str(home / "bin" / "spark-submit"), "--master", "local[1]", *words]
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "JAVA_HOME") if name in os.environ}
    done = subprocess.run(
        [*submit, "--py-files", str(wheel), str(job), servers, topic],
        env={**kept, "PYSPARK_PYTHON": str(python), "SPARK_LOCAL_IP": "127.0.0.1"},
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    where, count = (tmp_path / "found").read_text().split()
    assert (".whl" in where, count) == (True, "10")
