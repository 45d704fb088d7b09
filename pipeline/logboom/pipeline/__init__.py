"""The data pipeline: logboom topics in Spark, implemented in PySpark alone.

    from logboom.pipeline import session

    spark = session("my job")
    flights = spark.read.format("logboom").option("subscribe", "flights").load()

Spark finds the format by itself (`pyspark_logboom`); `register` makes sure of it in a session that
was made elsewhere, and lets `commitGroup` work. docs/PIPELINE.md has every option. The portion needs
the extra `[spark]` and a Java 17; nothing here imports PySpark before it is used.
"""

from logboom.pipeline.spark_session import register, session
from logboom.pipeline.updates import publish_updates

__all__ = ["publish_updates", "register", "session"]
