"""Spark: sessions, the data source `anabranch`, and their types and errors."""
