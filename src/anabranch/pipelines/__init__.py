"""Pipelines: tables declared as SQL or as functions of other tables, published as one commit.

DuckDB builds them in this process, or Spark.
"""
