"""The jobs of `logboom pipeline`. Each module has the pure functions, DataFrame in and DataFrame out,
and one function that runs them over topics and reports."""
