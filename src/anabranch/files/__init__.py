"""Rows in files that others write and read: CSV, JSON, Parquet, ORC and Lance."""
