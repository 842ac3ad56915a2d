"""Which functions a query may call."""

from anabranch.errors import InvalidExpressionError

__all__ = ["check_function", "check_table_function"]

# Table functions read files, other processes' memory, settings and SQL in strings; only those that compute are let in.
_TABLE_FUNCTIONS = frozenset(
    {"generate_series", "generate_subscripts", "json_each", "json_tree", "range", "repeat", "repeat_row", "unnest"}
)
# Other functions compute. These read the machine's state, write, or wait.
_FORBIDDEN = frozenset(
    {
        "current_query",
        "current_setting",
        "currval",
        "getenv",
        "getvariable",
        "json_execute_serialized_sql",
        "nextval",
        "pg_sleep",
        "setseed",
        "sleep_ms",
        "write_log",
    }
)


def check_table_function(name: str) -> None:
    if name.lower() not in _TABLE_FUNCTIONS:
        raise InvalidExpressionError(
            f"the table function {name} is not allowed",
            hint=f"name a table of the repository, or use {', '.join(sorted(_TABLE_FUNCTIONS))}",
        )


def check_function(name: str) -> None:
    if name.lower() in _FORBIDDEN:
        raise InvalidExpressionError(f"the function {name} is not allowed", hint="leave it out")
