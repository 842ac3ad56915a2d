"""A schema as plain values and as YAML: what `desired` reads, and people like to read."""

from typing import Any

from anabranch.repo.schema.state import Column, Index, SchemaState, TableSchema

__all__ = ["schema_document", "schema_yaml"]

# Text does not wrap: a broken type or expression is hard to read.
_WIDTH = 10_000


def schema_yaml(state: SchemaState) -> str:
    import yaml  # only schemas need it

    class Dumper(yaml.SafeDumper):  # type: ignore[misc]
        """No names for what occurs twice."""

        def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - the signature of the base
            return True

    def in_one_line(dumper: Any, data: list[Any]) -> Any:
        is_plain = all(isinstance(item, str) for item in data)
        return dumper.represent_sequence("tag:yaml.org,2002:seq", data, flow_style=is_plain)

    Dumper.add_representer(list, in_one_line)
    document = schema_document(state)
    return str(yaml.dump(document, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=_WIDTH))


def schema_document(state: SchemaState) -> dict[str, Any]:
    tables: dict[str, dict[str, Any]] = {bucket: {} for bucket in state.buckets}
    for table in state.tables:
        tables[table.key.bucket][table.key.table] = _table(table)
    return {"tables": tables}


def _table(table: TableSchema) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if table.was is not None:
        found["was"] = table.was.table if table.was.bucket == table.key.bucket else str(table.was)
    if table.description is not None:
        found["description"] = table.description
    if table.primary_key:
        found["primary_key"] = list(table.primary_key)
    found["columns"] = {column.name: _column(column) for column in table.columns}
    if table.indices:
        found["indices"] = [_index(index) for index in table.indices]
    return found


def _column(column: Column) -> str | dict[str, Any]:
    said = {"was": column.was, "default": column.default, "description": column.description}
    more = {name: text for name, text in said.items() if text is not None}
    if not more:
        return column.type if column.nullable else f"{column.type} not null"
    return {"type": column.type, **({} if column.nullable else {"nullable": False}), **more}


def _index(index: Index) -> str | dict[str, Any]:
    found: dict[str, Any] = {"column": index.column, "type": index.kind.value}
    if index.chosen_name != f"{index.column}_idx":
        found["name"] = index.name
    for name in ("metric", "num_partitions", "num_sub_vectors"):
        value = getattr(index, name)
        if value is not None:
            found[name] = value
    return found
