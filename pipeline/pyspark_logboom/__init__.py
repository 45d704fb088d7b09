"""Where Spark finds the format "logboom" by itself: it imports every module called `pyspark_…`.

Light on purpose: one such module that fails to import hides all sources of a session.
"""

from logboom.pipeline.data_source import LogboomDataSource as DefaultSource

__all__ = ["DefaultSource"]
