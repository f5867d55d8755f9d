"""``tuner db``: looks after a database."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tuner.cli import options
from tuner.cli.output import answer_only, note, print_json, say
from tuner.wording import counted

_HELP = """Look after a database: is it whole, copies, joining, what could go, how large it is.

\b
Example:
  tuner db check
  tuner db backup -o tuner-backup.db
"""


def db_app() -> typer.Typer:
    """The group of commands."""
    app = typer.Typer(name="db", help=_HELP, rich_markup_mode=None)
    for function in (check, upgrade, backup, merge, prune, stats):
        app.command()(function)
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
        print_json({"sound": found.sound, **vars(found)})
    else:
        faults = [(f.kind, f.where, f.problem, f.remedy) for f in found.findings]
        print_table("", ("what", "where", "wrong", "what to do"), faults)
        if found.sound:
            say(f"{found.database}: sound ({counted(sum(found.rows.values()), 'row')}, schema {found.revision})")
        else:
            note(f"{found.database}: {len(found.findings)} wrong")
    _notes(found.notes)
    if not found.sound:
        raise typer.Exit(1)


def upgrade(db: options.Db = None, json: options.Json = False) -> None:
    """Bring the database to this program's schema, all of it or nothing. Commands that write do so by themselves.

    \b
    Example:
      tuner db upgrade --db team.db
    """
    with answer_only(json):
        from tuner import upkeep

        found = upkeep.upgrade_database(db=db)
    if json:
        print_json(found)
    elif found.before == found.after:
        say(f"{found.database}: schema {found.after}, the newest already")
    else:
        say(f"{found.database}: schema {found.before} upgraded to {found.after}")


def backup(
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The copy; it must not exist yet.")],
    db: options.Db = None,
    json: options.Json = False,
) -> None:
    """Copy the database as it is at this moment to a new SQLite file. Studies may go on meanwhile.

    Of PostgreSQL it takes the results, not Optuna's log of the searches.

    \b
    Example:
      tuner db backup -o tuner-backup.db
    """
    with answer_only(json):
        from tuner import upkeep

        found = upkeep.backup_database(output, db=db)
    if json:
        print_json(found)
    else:
        say(f"wrote {found.path} ({_size(found.bytes)})")


def merge(
    other: Annotated[str, typer.Argument(metavar="OTHER", help="The database to read: a URL or a path.")],
    db: options.Db = None,
    json: options.Json = False,
) -> None:
    """Join another database into this one, without anything twice. OTHER is only read.

    In whatever order databases are joined, and however often, the content is the same. Sources that come from OTHER are
    never run before this installation's templates render them, or you say so (`tuner reproduce --trust-source`).

    \b
    Example:
      tuner db merge other-machine.db
      tuner db merge laptop.db --db postgresql+psycopg://tuner@db.example.org/tuner
    """
    with answer_only(json):
        from tuner import upkeep

        found = upkeep.merge_database(other, db=db)
    if json:
        print_json(found)
        return
    from tuner.cli.tables import print_table

    print_table("", ("table", "rows added"), list(found.added.items()), right=("rows added",))
    say(f"merged {found.other} into {found.database}: {counted(sum(found.added.values()), 'row')} added")
    if found.unproven:
        note(f"note: {found.unproven} sources come from other databases and were not rendered here; none is run unseen")


def prune(
    before: Annotated[
        str, typer.Option("--before", metavar="DATE", help="Results that were last changed before it (UTC).")
    ],
    of_operator: options.OfOperator = None,
    yes: Annotated[bool, typer.Option("--yes", help="Delete; without it, say what would be deleted.")] = False,
    db: options.Db = None,
    json: options.Json = False,
) -> None:
    """Say what could go of old results, and how much that is; with --yes delete it.

    What a winner chose, was compared with or tied with stays, and so does every study that is being run.

    \b
    Example:
      tuner db prune --before 2026-01-01
      tuner db prune --before 2026-01-01 --yes
    """
    with answer_only(json):
        from tuner import upkeep

        found = upkeep.prune_database(before, operator=of_operator, yes=yes, db=db)
    if json:
        print_json(found)
        return
    from tuner.cli.tables import print_table

    print_table("", ("table", "rows"), [(name, rows) for name, rows in found.rows.items() if rows], right=("rows",))
    trials, kept = (
        found.rows["tuner_trial"],
        f"; {found.kept} as old stay, because winners or running studies need them",
    )
    what = f"{counted(trials, 'trial')}, about {_size(found.bytes)}{kept if found.kept else ''}"
    say(f"{found.database}: deleted {what}" if found.done else f"{found.database}: would delete {what}; say --yes")


def stats(db: options.Db = None, json: options.Json = False) -> None:
    """How large the database is: rows and bytes by table, and what a trial adds.

    \b
    Example:
      tuner db stats
    """
    with answer_only(json):
        from tuner import upkeep

        found = upkeep.database_stats(db=db)
    if json:
        print_json(found)
    else:
        from tuner.cli.tables import print_table

        sizes = {name: _size(found.table_bytes[name]) if name in found.table_bytes else "?" for name in found.tables}
        rows = [(name, count, sizes[name]) for name, count in found.tables.items()]
        print_table("", ("table", "rows", "size"), rows, right=("rows", "size"))
        each = f"; {_size(round(found.bytes_per_trial))} a trial" if found.bytes_per_trial else ""
        say(f"{found.database}: {_size(found.bytes)}{each}; schema {found.revision}")
        if found.unproven:
            note(f"note: {found.unproven} sources come from other databases and were not rendered here")
    _notes(found.notes)


def _notes(notes: Any) -> None:
    for text in notes:
        note(f"note: {text}")


def _size(count: int) -> str:
    """Bytes for people, in binary units."""
    size = float(count)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024.0:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024.0
    return f"{size:.2f} GiB"
