"""The command `anabranch`: it assembles the groups and handles all errors."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import typer

import anabranch
from anabranch.cli.arguments import example
from anabranch.cli.commands import (
    blame,
    branch,
    cat,
    changes,
    clone,
    compact,
    conflicts,
    dataset,
    decisions,
    demo,
    diff,
    doctor,
    export,
    gc,
    index,
    init,
    lineage,
    load,
    log,
    merge,
    merge_base,
    picks,
    pipeline,
    rebase,
    reflog,
    relocate,
    reset,
    run,
    schema,
    serve,
    show,
    sql,
    status,
    storage,
    switch,
    table,
    tag,
    ui,
    undo,
)
from anabranch.cli.exit_codes import exit_code
from anabranch.cli.groups import INSTEAD, UnknownCommandError, WordGroup
from anabranch.cli.merging import with_conflicts
from anabranch.cli.output import ErrorView, output_for, printable
from anabranch.errors import AnabranchError, MergeConflictError
from anabranch.hints import Door, words_at
from anabranch.warnings import collect_warnings

__all__ = ["create_app", "main"]


class _App(WordGroup):
    """The root of the commands. Every error below becomes a message and an exit code here."""

    instead = INSTEAD

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,  # noqa: ARG002 - Typer would handle errors by itself
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        given = list(sys.argv[1:] if args is None else args)
        # Also for errors in the arguments themselves, before any command has read them.
        output = output_for(as_json="--json" in given)
        try:
            with collect_warnings() as warnings, _showing(warnings):
                code = super().main(
                    args=given,
                    prog_name=prog_name or "anabranch",
                    complete_var=complete_var,
                    standalone_mode=False,
                    windows_expand_args=windows_expand_args,
                    **extra,
                )
        except AnabranchError as error:
            output.fail(_view_of(error))
            code = exit_code(type(error))
        except typer.TyperException as error:
            output.fail(_view_of_usage(error))
            code = error.exit_code
        sys.exit(code if isinstance(code, int) else 0)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - Typer's signature
        """Group the commands by their panels, without loading rich as Typer would."""
        panels: dict[str, list[tuple[str, Any]]] = {}
        for name, command in self.commands.items():
            panels.setdefault(getattr(command, "rich_help_panel", None) or "Commands", []).append((name, command))
        width = formatter.width - 6 - max(map(len, self.commands))
        for panel, commands in panels.items():
            with formatter.section(panel):
                formatter.write_dl([(name, command.get_short_help_str(width)) for name, command in commands])


@contextmanager
def _showing(warnings: list[str]) -> Iterator[None]:
    """Show on stderr what a command warned of, whether it succeeds or fails."""
    try:
        yield
    finally:
        for warning in warnings:
            typer.echo(f"warning: {printable(words_at(Door.COMMAND_LINE, warning))}", err=True)


def _view_of(error: AnabranchError) -> ErrorView:
    hint = words_at(Door.COMMAND_LINE, error.hint)
    view = ErrorView(code=error.code, message=error.problem, hint=hint, retryable=error.retryable)
    return with_conflicts(view, error) if isinstance(error, MergeConflictError) else view


def _view_of_usage(error: typer.TyperException) -> ErrorView:
    context = getattr(error, "ctx", None)
    command = "anabranch" if context is None else context.command_path
    message = error.format_message().rstrip(".")
    hint = error.hint if isinstance(error, UnknownCommandError) else f"see '{command} --help'"
    return ErrorView(code="usage", message=message[:1].lower() + message[1:], hint=hint, retryable=False)


def create_app() -> typer.Typer:
    """The commands, put together."""
    app = typer.Typer(
        cls=_App,
        name="anabranch",
        invoke_without_command=True,
        add_completion=False,
        rich_markup_mode=None,
        # Its tracebacks would show local variables, storage options among them.
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    _add_repository_commands(app)
    _add_maintenance_commands(app)
    app.add_typer(dataset.app, name="dataset", rich_help_panel="One Lance dataset")
    return app


def _add_repository_commands(app: typer.Typer) -> None:
    start, branches, tables = "Start", "Branches", "Tables"
    app.command("init", rich_help_panel=start, epilog=example("init lake", "init s3://bucket/lake"))(init.init)
    app.command("demo", rich_help_panel=start, epilog=example("demo", "demo my-shop"))(demo.demo)
    app.add_typer(clone.app, name="clone", rich_help_panel=start)
    app.command(
        "serve", rich_help_panel=start, epilog=example("serve --data ./data --init", "serve --data ./data --port 8080")
    )(serve.serve)
    app.command("ui", rich_help_panel=start, epilog=example("ui", "ui --repo s3://bucket/lake --no-browser"))(ui.ui)
    app.command("status", rich_help_panel=start, epilog=example("status", "status --json"))(status.status)
    app.command(
        "switch",
        rich_help_panel=branches,
        epilog=example("switch dev", "switch -c fix --from v1.0", "switch main --repo lake"),
    )(switch.switch)
    app.add_typer(branch.app, name="branch", rich_help_panel=branches)
    _add_merge_commands(app, panel=branches)
    _add_history_commands(app)
    app.add_typer(pipeline.app, name="pipeline", rich_help_panel="Pipelines")
    app.add_typer(run.app, name="run", rich_help_panel="Pipelines")
    app.add_typer(table.app, name="table", rich_help_panel=tables)
    app.add_typer(schema.app, name="schema", rich_help_panel=tables)
    app.command(
        "load",
        rich_help_panel=tables,
        epilog=example(
            "load in_c_sales.orders orders.csv --primary-key id",
            "load in_c_sales.orders 's3://in/2026/*.csv' --mode upsert",
        ),
    )(load.load)
    app.command(
        "export",
        rich_help_panel=tables,
        epilog=example(
            "export in_c_sales.orders orders.parquet", "export in_c_sales.orders out --format csv --ref v1.0"
        ),
    )(export.export)
    app.command(
        "compact",
        rich_help_panel=tables,
        epilog=example("compact", "compact in_c_sales.orders --branch dev", "compact --engine spark"),
    )(compact.compact)
    app.command(
        "index",
        rich_help_panel=tables,
        epilog=example("index in_c_sales.orders id", "index in_c_shop.events embedding --type ivf_pq --metric cosine"),
    )(index.index)
    app.command(
        "cat",
        rich_help_panel=tables,
        epilog=example("cat in_c_sales.orders --where 'amount > 100' --columns id,amount"),
    )(cat.cat)
    app.command(
        "blame",
        rich_help_panel=tables,
        epilog=example("blame in_c_sales.orders --where 'id = 7'", "blame in_c_sales.orders --cells --limit 5 --json"),
    )(blame.blame)
    app.command(
        "sql",
        rich_help_panel=tables,
        epilog=example(
            "sql 'SELECT count(*) FROM in_c_sales.orders'", "sql --csv --ref main~3 < report.sql", "sql 'FROM branches'"
        ),
    )(sql.sql)


def _add_maintenance_commands(app: typer.Typer) -> None:
    panel = "Maintenance"
    app.command(
        "doctor",
        rich_help_panel=panel,
        epilog=example("doctor", "doctor --rows --table in_c_sales.orders", "doctor --repair"),
    )(doctor.doctor)
    app.command(
        "gc",
        rich_help_panel=panel,
        epilog=example("gc --dry-run --list", "gc --keep-newer-than 30d --keep-last 10", "gc --grace 30m"),
    )(gc.gc)
    app.command(
        "storage", rich_help_panel=panel, epilog=example("storage", "storage --branch dev", "storage --keep-last 10")
    )(storage.storage)
    app.command(
        "relocate",
        rich_help_panel=panel,
        epilog=example("relocate /mnt/new/lake", "relocate clone --mapping s3://bucket/lake=s3://other/lake"),
    )(relocate.relocate)


def _add_merge_commands(app: typer.Typer, *, panel: str) -> None:
    app.command(
        "merge",
        rich_help_panel=panel,
        epilog=example(
            "merge dev",
            "merge dev --into main --resolve price=max --resolve 'in_c_sales.orders.state=latest_by(updated_at)'",
            "merge dev --check totals.sql --dry-run",
        ),
    )(merge.merge)
    app.command(
        "conflicts",
        rich_help_panel=panel,
        epilog=example("conflicts dev", "conflicts dev --into main --stat", "conflicts dev --limit 100 --offset 200"),
    )(conflicts.conflicts)
    app.command(
        "decisions",
        rich_help_panel=panel,
        epilog=example("decisions dev", "decisions dev --into main --clear"),
    )(decisions.decisions)
    app.command(
        "rebase", rich_help_panel=panel, epilog=example("rebase main", "rebase v1.0 --branch dev --strategy target")
    )(rebase.rebase)


def _add_history_commands(app: typer.Typer) -> None:
    history, undo_panel = "History", "Undo and redo"
    app.command("log", rich_help_panel=history, epilog=example("log --graph", "log dev --table in_c_sales.orders"))(
        log.log
    )
    app.command("show", rich_help_panel=history, epilog=example("show", "show main~3"))(show.show)
    app.command(
        "diff", rich_help_panel=history, epilog=example("diff main", "diff v1.0 dev --rows", "diff main...dev")
    )(diff.diff)
    app.command(
        "merge-base", rich_help_panel=history, epilog=example("merge-base main dev", "merge-base main dev --all")
    )(merge_base.merge_base)
    app.command(
        "lineage",
        rich_help_panel=history,
        epilog=example("lineage gold.revenue", "lineage gold.revenue --ref v1.0 --svg revenue.svg"),
    )(lineage.lineage)
    app.command(
        "changes",
        rich_help_panel=history,
        epilog=example("changes in_c_sales.orders --since v1.0", "changes in_c_sales.orders --since main~3 --rows"),
    )(changes.changes)
    app.add_typer(tag.app, name="tag", rich_help_panel=history)
    app.command("reflog", rich_help_panel=history, epilog=example("reflog", "reflog dev --limit 5"))(reflog.reflog)
    app.command("undo", rich_help_panel=undo_panel, epilog=example("undo", "undo dev"))(undo.undo)
    app.command("redo", rich_help_panel=undo_panel, epilog=example("redo", "redo dev"))(undo.redo)
    app.command(
        "revert", rich_help_panel=undo_panel, epilog=example("revert 01M7GMZB03Y0YA", "revert main~3..main --dry-run")
    )(picks.revert)
    app.command(
        "cherry-pick",
        rich_help_panel=undo_panel,
        epilog=example("cherry-pick dev", "cherry-pick dev~2 -b fix", "cherry-pick main..dev"),
    )(picks.cherry_pick)
    app.command("reset", rich_help_panel=undo_panel, epilog=example("reset main~1", "reset dev@v7 --branch dev"))(
        reset.reset
    )


def _root(
    context: typer.Context,
    version: Annotated[  # noqa: ARG001 - its callback does the work
        bool,
        typer.Option(
            "--version",
            is_eager=True,
            callback=lambda wanted: _show_version(wanted=wanted),
            help="Show the version and exit.",
        ),
    ] = False,
) -> None:
    """Git-style branches, commits, diffs and merges for a whole lake of Lance tables."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def _show_version(*, wanted: bool) -> None:
    if wanted:
        typer.echo(f"anabranch {anabranch.__version__}")
        raise typer.Exit


def main(args: Sequence[str] | None = None) -> None:
    """Run a command line, the process's own by default, and exit with its code."""
    create_app()(args=args)


if __name__ == "__main__":
    main()
