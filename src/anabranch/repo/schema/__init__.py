"""Desired states of tables, the plans that lead to them, and how a plan becomes one commit."""
