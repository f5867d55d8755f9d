"""``tuner query``: stored rows, filtered, sorted, grouped, and written as a table, CSV, JSON or Parquet."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tuner.cli import options
from tuner.cli.output import answer_only, note, plain, print_data, print_json
from tuner.device import ESTIMATED
from tuner.errors import UsageError
from tuner.terminal import harmless_json
from tuner.trial import Outcome
from tuner.wording import counted

if TYPE_CHECKING:
    from tuner.querying import QueryResult

TABLE_LIMIT = 50
_TABLE = "table"
_FORMATS = (_TABLE, "csv", "json", "parquet")
_SHOWN = {
    "trials": ("trial", "problem", "device", "triton", "outcome", "time", "config", "stored"),
    "measurements": ("measurement", "problem", "device", "triton", "stage", "time", "samples", "config", "stored"),
    "winners": ("problem", "device", "triton", "time", "gain", "config", "stored"),
}


def query(
    what: Annotated[str, typer.Argument(metavar="WHAT", help="trials, measurements or winners.")] = "trials",
    of_operator: options.OfOperator = None,
    shape: Annotated[
        list[str] | None,
        typer.Option("--shape", metavar="NAME=N..M", help="Sizes, or ranges of them: cols=1024..8192,rows=4096."),
    ] = None,
    dtype: options.Dtype = None,
    device: options.DevicePart = None,
    triton: Annotated[str, typer.Option("--triton", metavar="V", help="On this Triton.", show_default=False)] = "",
    torch: Annotated[str, typer.Option("--torch", metavar="V", help="On this torch.", show_default=False)] = "",
    driver: Annotated[str, typer.Option("--driver", metavar="V", help="On this driver.", show_default=False)] = "",
    stack: Annotated[
        str, typer.Option("--stack", metavar="KEY", help="On the stack whose key begins so.", show_default=False)
    ] = "",
    since: Annotated[
        str | None, typer.Option("--since", metavar="DATE", help="Stored since then (UTC).", show_default=False)
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="DATE", help="Stored until then (UTC).", show_default=False)
    ] = None,
    outcome: Annotated[
        list[str] | None,
        typer.Option("--outcome", metavar="NAME", help="Ended so (repeat for more), or all. Default: timed."),
    ] = None,
    template: Annotated[
        str | None, typer.Option("--template", metavar="NAME", help="Of this template.", show_default=False)
    ] = None,
    estimated: Annotated[bool, typer.Option("--estimated", help="Estimates in place of measurements.")] = False,
    sort: Annotated[
        str, typer.Option("--sort", metavar="COLUMN,...", help="By these; -COLUMN: largest first. Default: newest.")
    ] = "",
    group_by: Annotated[
        str, typer.Option("--group-by", metavar="COLUMN,...", help="Count rows, with fastest and slowest time.")
    ] = "",
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit", metavar="N", min=1, help=f"At most so many rows. Default: {TABLE_LIMIT} in a table, else all."
        ),
    ] = None,
    form: Annotated[
        str | None,
        typer.Option("--format", metavar="FORMAT", help=f"One of {', '.join(_FORMATS)}.", show_default=False),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="Write there: .csv, .json or .parquet. Only such a table is replaced.",
            show_default=False,
        ),
    ] = None,
    db: options.Db = None,
    json: options.Json = False,
) -> None:
    """Stored trials, measurements or winners. Only what is right and timed, unless --outcome says otherwise.

    Columns are those of --json and CSV; --sort and --group-by take them, and shape parameters such as cols.

    \b
    Example:
      tuner query --operator softmax --shape cols=1024..8192 --dtype bf16 --sort time_us
      tuner query trials --outcome wrong --outcome crashed --since 2026-05-01
      tuner query trials --outcome all --group-by template,outcome
      tuner query winners --device H200 -o winners.csv
    """
    from tuner.table_files import csv_text, format_of, json_text, require_parquet, write_table

    chosen = form or (format_of(output) if output else "json" if json else _TABLE)
    if chosen not in _FORMATS:
        raise UsageError(f"--format must be one of {', '.join(_FORMATS)}, but got {chosen!r}")
    if json and chosen != "json":
        raise UsageError(f"--json and --format {chosen} exclude each other; choose one")
    if output is None and chosen == "parquet":
        raise UsageError("Parquet goes to a file; name it with --output")
    if output is not None and chosen == _TABLE:
        raise UsageError("a table for people goes to stdout; write .csv, .json or .parquet")
    if chosen == "parquet":
        require_parquet()  # before anything is read
    with answer_only(json):
        from tuner import api

        found = api.query(
            what,
            operator=of_operator,
            shape=",".join(shape or ()),
            dtype=dtype,
            device=device,
            triton=triton,
            torch=torch,
            driver=driver,
            stack=stack,
            since=since,
            until=until,
            outcomes=tuple(outcome or ()),
            template=template,
            estimated=estimated,
            sort=_names(sort),
            group_by=_names(group_by),
            limit=limit if limit is not None or chosen != _TABLE else TABLE_LIMIT,
            db=db,
        )
    if output is not None:
        write_table(output, chosen, found.columns, found.rows)
        note(f"wrote {counted(len(found.rows), 'row')} to {output}")
    elif json:
        print_json({"columns": found.columns, "rows": [plain(r) for r in found.as_records()], "more": found.more})
    elif chosen == "json":
        print_data(harmless_json(json_text(found.columns, found.rows)))
    elif chosen == "csv":
        print_data(csv_text(found.columns, found.rows))
    else:
        _print(found, what, grouped=bool(group_by), estimated=estimated)
    if not found.rows:
        note("nothing stored is like that" + ("" if estimated else " (estimates: add --estimated)"))
    elif found.more:
        note(f"{counted(len(found.rows), 'row')}; there are more: --limit {10 * len(found.rows)}")


def _names(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _named(record: dict[str, Any], estimated: bool) -> dict[str, Any]:
    """``record``, in which nothing was timed where it is of estimates."""
    timed = estimated and record.get("outcome") == Outcome.TIMED
    return {**record, "outcome": ESTIMATED} if timed else record


def _print(found: QueryResult, what: str, *, grouped: bool, estimated: bool) -> None:
    from tuner.cli.tables import print_table
    from tuner.wording import gain_text, time_text

    if grouped:
        shown = [
            tuple(
                time_text(v, estimated) if c in ("fastest_us", "slowest_us") else "-" if v is None else v
                for c, v in _named(r, estimated).items()
            )
            for r in found.as_records()
        ]
        print_table("", found.columns, shown, right=("count", "fastest_us", "slowest_us"))
        return
    cells = []
    for record in (_named(r, r["basis"] == ESTIMATED) for r in found.as_records()):
        record["time"] = time_text(record["time_us"], record["basis"] == ESTIMATED)
        record["gain"] = gain_text(record.get("gain"))
        record["stored"] = f"{record['created_at']:%Y-%m-%d %H:%M}"
        cells.append(tuple(record[name] for name in _SHOWN[what]))
    print_table("", _SHOWN[what], cells, right=("trial", "measurement", "time", "gain", "samples"))
