"""``tuner db``: looks after a database."""

from __future__ import annotations

import typer

from tuner.cli import options
from tuner.cli.output import answer_only, note, print_json, say


def db_app() -> typer.Typer:
    """The group of commands."""
    app = typer.Typer(name="db", help="Look after a database.", rich_markup_mode=None)
    app.command()(check)
    return app


def check(db: options.Db = None, json: options.Json = False) -> None:
    """Is the database whole, and is every row what it says? Exits with 1 where something is wrong.

    The file's integrity (SQLite), the schema, references, every stored source, config, problem, device and sample
    against its hash, and every winner: was it checked, right and measured? Nothing is changed.

    \b
    Example:
      tuner db check
      tuner db check --db team.db --json
    """
    from tuner.cli.tables import print_table

    with answer_only(json):
        from tuner import upkeep

        found = upkeep.check_database(db=db)
    if json:
        print_json({"sound": found.sound, **_fields(found)})
    else:
        rows = sum(found.rows.values())
        faults = [(f.kind, f.where, f.problem, f.remedy) for f in found.findings]
        print_table("", ("what", "where", "wrong", "what to do"), faults)
        if found.sound:
            say(f"{found.database}: sound ({rows} rows, schema {found.revision})")
        else:
            note(f"{found.database}: {len(found.findings)} wrong")
    for text in found.notes:
        note(f"note: {text}")
    if not found.sound:
        raise typer.Exit(1)


def _fields(value: object) -> dict[str, object]:
    return dict(vars(value))
