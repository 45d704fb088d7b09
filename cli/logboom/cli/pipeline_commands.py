"""`logboom pipeline`: jobs over topics, on Spark. They need the extra `[spark]` and a Java 17.

Where Spark comes from is `--master`: this machine by default, or a cluster. How far a job is stands
in its checkpoint folder; run again, it goes on from there.
"""

from __future__ import annotations

from cyclopts import App

from logboom.cli.pipeline_archive import archive, replay
from logboom.cli.pipeline_checks import audit, lag
from logboom.cli.pipeline_init import init
from logboom.cli.pipeline_streams import dedup, enrich, window
from logboom.cli.pipeline_tables import compact, dlq, redrive

app = App(name="pipeline", help="Jobs over topics, on Spark.")

for _job in (archive, replay, enrich, dedup, window, compact, dlq, redrive, lag, audit, init):
    app.command(_job)
