"""The answers of the pipeline commands: plans, runs, backfills and reproductions."""

from typing import TYPE_CHECKING

from anabranch.cli.documents import document_of
from anabranch.cli.output import DIFFERENT, Answer, Line, count
from anabranch.cli.tables import Table
from anabranch.display import short_id

if TYPE_CHECKING:
    from anabranch.pipelines.backfill import Backfill
    from anabranch.pipelines.plan import Plan, Step
    from anabranch.pipelines.reproduction import ComparedOutput, Reproduction
    from anabranch.pipelines.run import PipelineRun


def plan_answer(plan: "Plan", *, draws: bool = False, svg: str | None = None) -> Answer:
    """Show a plan, as a graph with `draws`. `svg` is a file with a drawing of the graph."""
    sentences = [f"{plan.pipeline} on {plan.branch}: {count(len(plan.steps), 'step')}; nothing was done"]
    document = document_of(plan)
    if svg is not None:
        sentences.append(f"drew the graph into {svg}")
        document["svg"] = svg
    lines: list[Line] = []
    if draws and plan.steps:
        # Two empty lines keep the drawing apart.
        lines = [Line(""), *map(Line, plan.to_text().splitlines()), Line("")]
    return Answer(document, *sentences, lines=lines, tables=_plan_tables(plan))


def _plan_tables(plan: "Plan") -> list[Table]:
    rows = [_step_row(number, step) for number, step in enumerate(plan.steps, start=1)]
    tables = [Table(("step", "output", "kind", "write", "reads"), rows, empty="no output is selected")]
    if plan.parameters:
        values = [(name, str(value)) for name, value in plan.parameters.items()]
        tables.append(Table(("", ""), values, title="parameters"))
    if plan.checks:
        tables.append(Table(("",), [(check.name,) for check in plan.checks], title="checks"))
    return tables


def _step_row(number: int, step: "Step") -> tuple[int, str, str, str, str | None]:
    output = step.output
    write = f"{output.write.value}{' (new table)' if step.creates else ''}"
    reads = [f"{name} (what is new)" if name in output.incremental else name for name in output.inputs]
    return number, step.key, output.kind, write, ", ".join(reads) or None


def backfill_answer(done: "Backfill") -> Answer:
    built = len(done.runs)
    sentence = f"ran {done.pipeline} on {done.branch} for {count(built, 'value')} of {done.parameter}"
    if done.skipped:
        sentence += f"; {count(len(done.skipped), 'value')} had been built before (--again builds them again)"
    return Answer(done, sentence)


def run_answer(done: "PipelineRun") -> Answer:
    rows = [
        (output.key, output.write, f"{output.rows:,}", f"{output.seconds:.1f}", ", ".join(output.inputs) or None)
        for output in done.outputs
    ]
    sentence = f"ran {done.pipeline} on {done.branch}: nothing changed"
    if done.commit_id is not None:
        checked = f", {count(len(done.checks), 'check')} passed" if done.checks else ""
        sentence = f"ran {done.pipeline} on {done.branch} at {short_id(done.commit_id)}{checked}"
    return Answer(done, sentence, tables=[Table(("output", "write", "rows", "seconds", "reads"), rows)])


def reproduction_answer(again: "Reproduction") -> Answer:
    different = [output for output in again.outputs if not output.is_same]
    source = "with the same source" if again.has_same_source else "with another source"
    found = "all outputs are the same"
    if different:
        found = f"{len(different)} of {count(len(again.outputs), 'output')} differ"
    rows = [(output.key, _verdict(output), output.inserted, output.updated, output.deleted) for output in again.outputs]
    return Answer(
        again,
        f"ran {short_id(again.commit_id)} again on {again.branch}, {source}: {found}",
        tables=[Table(("output", "", "inserted", "updated", "deleted"), rows)],
        exit_code=0 if again.is_same else DIFFERENT,
    )


def _verdict(output: "ComparedOutput") -> str:
    if output.is_same:
        return "same"
    if output.is_missing:
        return "no longer declared"
    changed = output.inserted + output.updated + output.deleted
    columns = "other columns" if output.has_other_columns else ""
    return " and ".join(part for part in (f"differs in {count(changed, 'row')}" if changed else "", columns) if part)
