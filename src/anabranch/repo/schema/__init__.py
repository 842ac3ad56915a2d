"""Declarative schemas: read a desired schema, plan the steps from the current one, apply them as one commit.

Start with `apply.apply_schema`. `desired` reads documents, `plan` decides without reading data, and `state` has the
values.
"""
