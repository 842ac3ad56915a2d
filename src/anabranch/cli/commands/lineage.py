"""`anabranch lineage` and `anabranch blame`: where tables and rows come from."""

from typing import Annotated

from anabranch.cli.command import Here, command, group
from anabranch.cli.options import Engine, RefOption, TableName, flag, option, parse_names
from anabranch.cli.output import Answer, Line, count
from anabranch.cli.tables import Table
from anabranch.cli.texts import text_value
from anabranch.display import short_id
from anabranch.files.plain_rows import plain_rows

app = group()


@command(app, "lineage", "lineage gold.revenue", "lineage gold.revenue --ref v1.0 --svg revenue.svg")
def lineage(
    here: Here,
    key: TableName,
    ref: RefOption = None,
    svg: Annotated[
        str | None,
        option("--svg", "FILE", "Write a drawing to this SVG file instead, local or in the store of the repository."),
    ] = None,
) -> Answer:
    """Show what a table was made from: tables, pipelines and loads."""
    with here.output.progress("tracing"), here.on_current_branch():
        found = here.repository.lineage(key, ref)
    if svg is None:
        return Answer(found.to_dict(), lines=[Line(line) for line in found.to_text().splitlines()])
    here.write_file(svg, found.to_svg())
    return Answer({**found.to_dict(), "svg": svg}, f"drew the lineage of {key} into {svg}")


@command(app, "blame", "blame shop.orders --where 'id = 7'", "blame shop.orders --cells --limit 5 --json")
def blame(
    here: Here,
    key: TableName,
    cells: Annotated[bool, flag("--cells", "Show the commit of each cell, not of each row.")] = False,
    columns: Annotated[str | None, option("--columns -c", "NAME,...", "Only the cells of these columns.")] = None,
    where: Annotated[str | None, option("--where", "SQL", "Only rows for which this condition is true.")] = None,
    limit: Annotated[int, option("--limit -n", "N", "Maximum number of rows.", min=1)] = 20,
    engine: Engine = "auto",
    ref: RefOption = None,
) -> Answer:
    """Show the commit that last changed each row of a table."""
    chosen = parse_names(columns)
    with here.output.progress("reading the history"), here.on_current_branch():
        found = here.repository.blame(
            key, ref=ref, where=where, limit=limit + 1, columns=chosen, cells=cells, engine=engine
        )
    in_row = len(chosen) if chosen is not None else len(here.snapshot(ref)[key].schema.names) if cells else 1
    has_more = len(found) > limit * in_row
    if has_more:
        # The rows of one column follow each other, and the last row of each column is one too many.
        kept = [number for number in range(len(found)) if number % (limit + 1) < limit]
        found = found.take(kept)
    names, rows = found.column_names, plain_rows(found)
    document = {
        "table": key,
        "columns": names,
        "rows": [dict(zip(names, row, strict=True)) for row in rows],
        "has_more": has_more,
    }
    at = names.index("commit_id")
    shown = [(*map(text_value, row[:at]), short_id(row[at]), *row[at + 1 :]) for row in rows]
    titles = (*names[:at], "commit", "time (UTC)", "by", "message")
    sentences = [f"the first {count(limit, 'row')}; --limit shows more"] if has_more else []
    return Answer(document, *sentences, tables=[Table(titles, tuple(shown), empty="no rows")])
