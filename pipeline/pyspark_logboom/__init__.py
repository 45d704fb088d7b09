"""Registration of the format "logboom": Spark imports every module called `pyspark_…`.

It is kept light because a module of this kind that fails to import hides all sources of a session.
"""

from logboom.pipeline.data_source import LogboomDataSource as DefaultSource

__all__ = ["DefaultSource"]
