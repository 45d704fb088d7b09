"""Registration of the format "logboom": Spark imports every module called `pyspark_…`.

Light on purpose: one such module that fails to import hides all sources of a session.
"""

from logboom.pipeline.data_source import LogboomDataSource as DefaultSource

__all__ = ["DefaultSource"]
