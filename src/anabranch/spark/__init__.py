"""Spark: sessions, the data source `anabranch`, and what both know about types and errors."""
