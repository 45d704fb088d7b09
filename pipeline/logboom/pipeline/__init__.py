"""The data pipeline: logboom topics in Spark, implemented in PySpark alone.

    from logboom.pipeline import session

    spark = session("my job")
    flights = spark.read.format("logboom").option("subscribe", "flights").load()

Spark finds the format automatically (`pyspark_logboom`). `register` ensures this in a session that
was created elsewhere, and enables `commitGroup`. docs/PIPELINE.md lists every option. The portion
needs the extra `[spark]` and Java 17. It imports PySpark only when it is used.
"""

from logboom.pipeline.spark_session import register, session
from logboom.pipeline.updates import publish_updates

__all__ = ["publish_updates", "register", "session"]
