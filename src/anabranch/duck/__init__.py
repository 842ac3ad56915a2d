"""The in-process engine: DuckDB, for interactive work that must not wait for Spark."""
