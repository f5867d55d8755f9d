"""How many planted bugs the check rejects, by input family, operator, template and dtype.

python -m benchmarks.mutants                 # the check as it is: it stops at the first family that fails
python -m benchmarks.mutants --every-family  # each family on its own: which would have seen each bug; takes long
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from tests.mutation.catalogue import runs
from tests.mutation.mutant import Run
from tests.mutation.running import Answer, ask_in_parallel
from tuner.operators import get

Row = tuple[str, ...]


def table(title: str, head: Row, rows: Iterable[Row]) -> None:
    """Print rows under a head, in columns."""
    lines = [head, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    print(f"\n{title}")
    for line in lines:
        print("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())


def rejected(chosen: list[Run], answers: dict[str, Answer]) -> None:
    """Bugs that the check rejects and all that there are, then the families that they fell on first."""
    bugs = [run for run in chosen if not run.mutant.equivalent]
    total = Counter((r.mutant.operator, r.template, r.dtype) for r in bugs)
    fell = Counter((r.mutant.operator, r.template, r.dtype) for r in bugs if not answers[r.key].passed)
    rows = [(*place, f"{fell[place]} / {count}") for place, count in sorted(total.items())]
    table("rejected / planted", ("operator", "template", "dtype", "rejected"), rows)
    first = Counter((r.mutant.operator, answers[r.key].family) for r in bugs if not answers[r.key].passed)
    for operator in dict.fromkeys(r.mutant.operator for r in bugs):
        families = get(operator).families(get(operator).example())
        counts = [(family, str(first[operator, family])) for family in families]
        table(f"{operator}: the family that rejected", ("family", "bugs"), counts)
    table("not rejected", ("bug", "what it breaks"), [(r.key, r.mutant.breaks) for r in bugs if answers[r.key].passed])
    equivalent = {r.mutant.name: r.mutant.equivalent for r in chosen if r.mutant.equivalent}
    table("rewrites that are no bugs", ("rewrite", "reason"), equivalent.items())
    refused = [r.key for r in chosen if r.mutant.equivalent and not answers[r.key].passed]
    print(f"of which rejected: {', '.join(refused) or 'none'}")


def by_family(chosen: list[Run], answers: dict[str, Answer]) -> None:
    """On each family, in each dtype: bugs that would fall on it, and those that no other family sees."""
    head = ("operator", "family", *(dtype for dtype in ("bf16", "fp16", "fp32")), "alone")
    rows: list[Row] = []
    for operator in dict.fromkeys(r.mutant.operator for r in chosen):
        bugs = [r for r in chosen if r.mutant.operator == operator and not r.mutant.equivalent]
        seen = {r.key: {f for f, count in (answers[r.key].fell or {}).items() if count} for r in bugs}
        for family in get(operator).families(get(operator).example()):
            caught = Counter(r.dtype for r in bugs if family in seen[r.key])
            alone = sum(families == {family} for families in seen.values())
            rows.append((operator, family, *(str(caught[dtype]) for dtype in head[2:5]), str(alone)))
    table("bugs that would fall on each family", head, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every-family", action="store_true", help="run each family on its own")
    parser.add_argument("--every-dtype", action="store_true", help="every bug in every dtype, not the classics alone")
    parser.add_argument("--only", default="", help="runs whose key contains this text, such as softmax/online/")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--out", type=Path, help="write every answer to this JSON file")
    given = parser.parse_args()
    chosen = [run for run in runs(given.every_dtype) if given.only in run.key]
    answers = {a.key: a for a in ask_in_parallel(chosen, given.every_family, given.processes)}
    (by_family if given.every_family else rejected)(chosen, answers)
    print(f"\n{len(chosen)} runs, {sum(a.seconds for a in answers.values()):.0f} s of {given.processes} processes")
    if given.out:
        given.out.write_text(json.dumps([vars(a) for a in answers.values()], indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
