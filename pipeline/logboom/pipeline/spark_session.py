"""Spark sessions that know logboom, and clear errors where Spark cannot run."""

from __future__ import annotations

import atexit
import importlib.util
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from logboom.pipeline.spark_errors import no_session
from logboom.wire.errors import StartError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NEEDED: Final = ("pyspark", "pyarrow")
INSTALL_JAVA: Final = "sudo apt-get install openjdk-17-jre-headless"
SETTINGS: Final[Mapping[str, str]] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
"""The default settings of `session`."""
LOCAL: Final[Mapping[str, str]] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # In short jobs, optimized compilation costs more time than it saves.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    # Spark's default of 200 tasks per shuffle is meant for a cluster.
    "spark.sql.shuffle.partitions": "8",
    # Saves about 40 ms in each task that reads and writes in Python.
    "spark.python.daemon.module": "logboom.pipeline.worker_daemon",
}
"""Further default settings if everything runs on this machine."""


LOGGING: Final = """\
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yy/MM/dd HH:mm:ss} %p %c{1}: %m%n%ex
# A missing Hadoop, and a format that was registered already, are not worth a warning.
logger.hadoop.name = org.apache.hadoop.util.NativeCodeLoader
logger.hadoop.level = error
logger.known.name = org.apache.spark.sql.execution.datasources.DataSourceManager
logger.known.level = error
"""
"""Spark's default, without the lines that report that no configuration was found."""


def check_spark() -> None:
    """Check that Spark can run here.

    Raises:
        StartError: the extra or Java is missing; the text says how to install it.
    """
    home = os.environ.get("JAVA_HOME", "")
    missing = []
    if any(importlib.util.find_spec(name) is None for name in NEEDED):
        missing.append("the pipeline needs its extra: pip install 'logboom[spark]'")
    if home and not (Path(home) / "bin" / "java").exists():
        missing.append(f"JAVA_HOME is {home}, and there is no bin/java in it: unset or mend it")
    if not home and shutil.which("java") is None:
        missing.append(f"Spark needs Java 17: {INSTALL_JAVA}, or set JAVA_HOME")
    if missing:
        raise StartError("; ".join(missing))


def session(
    name: str = "logboom", master: str = "", settings: Mapping[str, str] | None = None
) -> SparkSession:
    """Return a session with the format "logboom".

    It is stopped when this process ends, at the latest.

    Args:
        master: the URL of the master, such as "spark://host:7077"; "" is local[*], or what
            `spark-submit` sets.
        settings: Spark's settings by name.

    Raises:
        StartError: the extra `[spark]` or Java is missing, or Spark did not start.
    """
    check_spark()
    # Imported here, because only now it is known to be installed.
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    # Spark's tasks use this Python, because another one would not find its packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name)
    if master:
        builder = builder.master(master)
    local = local_settings(master, submitted="PYSPARK_GATEWAY_PORT" in os.environ)
    if local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        use_light_home()
    for key, value in {**SETTINGS, **local, **(settings or {})}.items():
        builder = builder.config(key, value)
    try:
        spark: SparkSession = builder.getOrCreate()
    except (PySparkException, Py4JError) as error:
        raise no_session(master, error) from None
    register(spark)
    # Registered now, to run before PySpark's own exit handler ends Spark's process.
    atexit.register(_stop, spark)
    return spark


def _stop(spark: SparkSession) -> None:
    """Stop a session that its script did not: what Spark still has to tell listeners, `commitGroup`
    among them, would reach nobody, and be an error."""
    from py4j.protocol import Py4JError

    # It may have been stopped, and Spark's process may have died.
    with suppress(Py4JError, OSError):
        if spark.sparkContext._jsc is not None:  # noqa: SLF001  # PySpark has no public name for it.
            spark.stop()


def local_settings(master: str, *, submitted: bool) -> dict[str, str]:
    """Return the settings of a session whose processes are all on this machine, otherwise {}.

    Args:
        submitted: `spark-submit` started this process and sets the master: on a
            cluster, executors must not connect to the driver at the loopback address.
    """
    if not master:
        return {} if submitted else dict(LOCAL)
    if re.fullmatch(r"local(\[.*\])?", master):
        return dict(LOCAL)
    # local-cluster[workers, cores, MiB]: Spark refuses executors larger than their workers.
    simulated = re.fullmatch(r"local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*(\d+)\s*\]", master)
    return {**LOCAL, "spark.executor.memory": f"{simulated[1]}m"} if simulated else {}


def use_light_home() -> None:
    """Let Spark's Python processes import PySpark from where it is installed.

    Python workers look into `python/lib/pyspark.zip` of Spark's home first, and modules in a zip
    are compiled again each time. This triples the start of each worker, of which a query starts
    several, and on a busy machine it takes longer than the ten seconds that Spark waits for a
    worker. So this home has no zip. A home that is already set, as by `spark-submit`, is kept.
    """
    spec = importlib.util.find_spec("pyspark")
    if "SPARK_HOME" in os.environ or spec is None or spec.origin is None:
        return
    installed = Path(spec.origin).parent
    home = Path(tempfile.mkdtemp(prefix="logboom-spark-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    for name in ("bin", "jars"):
        (home / name).symlink_to(installed / name)
    (home / "conf").mkdir()
    (home / "conf" / "log4j2.properties").write_text(LOGGING, encoding="utf-8")
    os.environ["SPARK_HOME"] = str(home)


def share_wheels(spark: SparkSession) -> None:
    """Let Spark's workers import from wheels too: of what `--py-files` names, it puts only .zip, .egg
    and .jar on their path, though it brings every file to each machine."""
    # A session of Spark Connect has no context, and sends its files itself.
    context = getattr(spark, "sparkContext", None)
    if context is None:
        return
    includes = context._python_includes  # noqa: SLF001  # addPyFile checks the file extension.
    named = context.getConf().get("spark.submit.pyFiles", "") or ""
    for path in named.split(","):
        name = path.rpartition("/")[2]
        if includes is not None and name.endswith(".whl") and name not in includes:
            includes.append(name)


def register(spark: SparkSession) -> None:
    """Register the format "logboom" and the listener for `commitGroup`.

    Repeating it is harmless.
    """
    # Imported here, because it imports PySpark.
    from logboom.pipeline.data_source import LogboomDataSource
    from logboom.pipeline.group_commit_listener import listen

    share_wheels(spark)
    spark.dataSource.register(LogboomDataSource)
    listen(spark)
