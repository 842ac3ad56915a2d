"""Pipelines: tables declared as SQL or as functions of other tables, built on Spark, published as one commit."""
