"""The jobs of `logboom pipeline`.

Each module has pure functions from DataFrame to DataFrame, and a function that runs them over
topics and reports.
"""
