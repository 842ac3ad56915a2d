"""`anabranch conflicts`: what a merge cannot decide by itself."""

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from anabranch.cli.arguments import AsJson, Engine, Limit, Repo, StorageOptions
from anabranch.cli.merging import (
    Into,
    MergeSource,
    ResolutionFile,
    Resolve,
    Strategy,
    conflict_document,
    conflict_table,
    parse_resolvers,
    read_resolutions,
)
from anabranch.cli.output import Answer, Table, count, output_for
from anabranch.cli.session import open_session
from anabranch.errors import TableNotFoundError

if TYPE_CHECKING:
    from anabranch.repo.merge.conflicts import Conflict

__all__ = ["conflicts"]


def conflicts(
    source: MergeSource,
    into: Into = None,
    limit: Limit = 20,
    offset: Annotated[int, typer.Option("--offset", metavar="N", min=0, help="Number of conflicts to skip.")] = 0,
    table: Annotated[
        str | None, typer.Option("--table", metavar="TABLE", show_default=False, help="Only those of this table.")
    ] = None,
    stat: Annotated[bool, typer.Option("--stat", help="Count all of them, by table and kind, instead.")] = False,
    by: Annotated[
        str,
        typer.Option(
            "--by",
            metavar="merge|cherry-pick|revert|rebase",
            help="What would have the conflicts. For cherry-pick and revert, SOURCE is a commit or a range; for rebase"
            " it is the branch, and --into what its commits go on top of.",
        ),
    ] = "merge",
    strategy: Strategy = "fail",
    resolve: Resolve = None,
    resolutions: ResolutionFile = None,
    include_decided: Annotated[
        bool, typer.Option("--include-decided", help="Also list those that a resolution, or a kept decision, decides.")
    ] = False,
    engine: Engine = "auto",
    repo: Repo = None,
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """List the conflicts that a merge would have, with what the base and both sides have; nothing is changed.

    Given a strategy or resolvers, those that they leave. With --by, the conflicts of a cherry-pick, a revert or a
    rebase: of several commits, those of the first one that has any.
    """
    here = open_session(repo=repo, storage_options=storage_option)
    target = into or here.current().name
    found = here.repository.conflicts(
        source,
        into=target,
        by=by.replace("-", "_"),
        strategy=strategy,
        resolvers=parse_resolvers(resolve),
        resolutions=read_resolutions(resolutions),
        include_decided=include_decided,
        engine=engine,
    )
    if by == "merge" and table is not None and not any(table in here.snapshot(ref) for ref in (source, target)):
        raise TableNotFoundError(f"neither {source} nor {target} has a table {table!r}", hint="name one that is there")
    wanted = (conflict for conflict in found if table in (None, conflict.table))
    of_what = {"source": source, "into": target}
    answer = _counts(wanted, of_what) if stat else _page(wanted, of_what, limit=limit, offset=offset)
    output_for(as_json=as_json).show(answer)


def _page(found: Iterator["Conflict"], of_what: Mapping[str, object], *, limit: int, offset: int) -> Answer:
    page = list(islice(found, offset, offset + limit + 1))
    has_more, page = len(page) > limit, page[:limit]
    document = {
        **of_what,
        "offset": offset,
        "conflicts": [conflict_document(conflict) for conflict in page],
        "has_more": has_more,
    }
    return Answer(
        document=document,
        sentences=[_sentence(offset, len(page), has_more=has_more)] if page else [],
        tables=[conflict_table(page)],
    )


def _sentence(offset: int, number: int, *, has_more: bool) -> str:
    last = offset + number
    if not offset and not has_more:
        return count(number, "conflict")
    which = f"conflict {last}" if number == 1 else f"conflicts {offset + 1} to {last}"
    return f"{which}; --offset {last} shows more" if has_more else f"{which}; there are no more"


def _counts(found: Iterator["Conflict"], of_what: Mapping[str, object]) -> Answer:
    counted = Counter((conflict.table, conflict.kind.value) for conflict in found)
    rows = tuple((*what, number) for what, number in sorted(counted.items()))
    names = ("table", "kind", "conflicts")
    document = {
        **of_what,
        "conflict_count": counted.total(),
        "tables": [dict(zip(names, row, strict=True)) for row in rows],
    }
    sentences = [count(counted.total(), "conflict")] if rows else []
    return Answer(
        document=document, sentences=sentences, tables=[Table(columns=names, rows=rows, empty="no conflicts")]
    )
