"""The benchmark that looks for false alarms: which problems, which configs, and what it writes down."""

from __future__ import annotations

import importlib
import json
import sys
from types import SimpleNamespace

import pytest

from tests.checkout import checkout
from tuner.operators import names
from tuner.space import load_space
from tuner.targets import target
from tuner.trial import Outcome, TrialRecord

pytest.importorskip("triton", reason="Triton runs on Linux only")


@pytest.fixture
def benchmark(monkeypatch):
    """The script, of the checkout; last on the path, so that ``tuner`` stays the one that is tested."""
    monkeypatch.setattr(sys, "path", [*sys.path, str(checkout())])
    return importlib.import_module("benchmarks.false_alarms")


@pytest.fixture
def machine():
    return SimpleNamespace(
        device=target("h200"), measures=True, stack=SimpleNamespace(triton="3.6.0"), workspace=SimpleNamespace()
    )


def logsumexp(benchmark):
    (problem, *_) = benchmark.problems(["bf16"], True, ["logsumexp"])
    return problem


def subject(benchmark, **changes):
    return benchmark.Subject(
        **{
            "problem": "p",
            "dtype": "bf16",
            "config": "c",
            "source": "s",
            "triton": "3.6.0",
            "device": "H200",
            **changes,
        }
    )


@pytest.mark.parametrize("small", [False, True])
def test_every_operator_has_problems_in_every_dtype(benchmark, small):
    found = list(benchmark.problems(["bf16", "fp32"], small))
    assert {(p.operator, p.dtype) for p in found} == {(n, d) for n in names(shipped=True) for d in ("bf16", "fp32")}
    assert set(benchmark.operators()) == set(names(shipped=True))
    assert len({p.key for p in found}) == len(found)
    some = list(benchmark.problems(["fp16"], small, ["softmax_topk", "attention_varlen"]))
    assert {p.operator for p in some} == {"softmax_topk", "attention_varlen"}


def test_shards_are_parts_of_the_same_configs_whatever_else_is_in_the_space(benchmark):
    problem = logsumexp(benchmark)
    configs = list(load_space("logsumexp").bind(problem, target("h200")).configs())
    shards = [benchmark.Shard.parse(f"{number}/3") for number in (1, 2, 3)]
    parts = [[c.label for c in configs if shard.has(problem, c)] for shard in shards]
    assert sorted(label for part in parts for label in part) == sorted(c.label for c in configs)
    assert all(len(configs) / 6 < len(part) < len(configs) / 2 for part in parts)
    assert [c.label for c in configs[::2] if shards[0].has(problem, c)] == [
        label for label in parts[0] if label in {c.label for c in configs[::2]}
    ]


@pytest.mark.parametrize("text", ["0/3", "4/3", "2", "a/b", "1/0"])
def test_a_shard_that_is_none_is_refused(benchmark, text, capsys):
    with pytest.raises(SystemExit, match="2"):
        benchmark.arguments(["--out", "x.json", "--shard", text])
    assert "--shard" in capsys.readouterr().err


def test_what_passed_or_does_not_compile_is_left_out_next_time_and_an_alarm_is_not(benchmark, tmp_path):
    path = tmp_path / "record.jsonl"
    record = benchmark.Record(path)
    ends = [Outcome.TIMED, Outcome.PRUNED, Outcome.OUT_OF_RESOURCES, Outcome.WRONG, Outcome.CRASHED]
    for number, outcome in enumerate(ends):
        record.add(subject(benchmark, config=str(number)), outcome)
    again = benchmark.Record(path)
    assert [again.is_done(subject(benchmark, config=str(number))) for number in range(6)] == [True] * 3 + [False] * 3
    assert [again.end(subject(benchmark, config=str(number))) for number in range(6)] == [
        "passed", "passed", "not compilable", "alarms", "left", "left"
    ]  # fmt: skip
    for name in ("problem", "dtype", "source", "triton", "device"):
        assert not again.is_done(subject(benchmark, config="0", **{name: "another"})), name
    again.add(subject(benchmark, config="3"), Outcome.TIMED)
    assert benchmark.Record(path).is_done(subject(benchmark, config="3"))
    assert len(path.read_text().splitlines()) == 5


def test_a_line_that_was_cut_off_is_forgotten_and_a_foreign_file_is_refused(benchmark, tmp_path, monkeypatch, capsys):
    path = tmp_path / "record.jsonl"
    benchmark.Record(path).add(subject(benchmark), Outcome.TIMED)
    with path.open("a") as file:
        file.write('{"problem": "p2", "dt')
    record = benchmark.Record(path)
    record.add(subject(benchmark, config="d"), Outcome.TIMED)
    assert [json.loads(line)["config"] for line in path.read_text().splitlines()] == ["c", "d"]
    path.write_text('{"rows": 3}\n')
    words = ["false_alarms", "--out", str(tmp_path / "x.json"), "--record", str(path)]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit, match="2"):
        benchmark.main()
    said = capsys.readouterr().err
    assert f"{path}:1: no line of a record" in said and said.count("\n") == 1


class Funnel:
    """Every config passes but those with fewest warps, which raise an alarm; two come out at once."""

    def __init__(self):
        self.tickets = []

    @property
    def in_flight(self):
        return len(self.tickets)

    def capacity(self):
        return 2 - len(self.tickets)

    def submit(self, ticket):
        self.tickets.append(ticket)

    def poll(self, timeout_s):
        out, self.tickets = self.tickets, []
        wrong = [ticket.config.values["num_warps"] == 1 for ticket in out]
        return [
            (t, TrialRecord(t.config, t.variant.hash, Outcome.WRONG if bad else Outcome.PRUNED, "why" if bad else ""))
            for t, bad in zip(out, wrong, strict=True)
        ]

    def abandon(self):
        return []


def test_a_second_run_tries_what_is_left_and_the_totals_are_over_both(benchmark, machine, tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr(benchmark, "make_funnel", lambda *given: made.append(Funnel()) or made[-1])
    machine.workspace = importlib.import_module("tuner.workspace").Workspace(tmp_path)
    problem = logsumexp(benchmark)
    run = benchmark.Run(machine, problem, benchmark.Shard(1, 1))
    alarms = sum(config.values["num_warps"] == 1 for config in run.configs)
    assert 0 < alarms < len(run.configs)
    record = benchmark.Record(tmp_path / "record.jsonl")
    first = run.records(record, 60.0, 0)
    assert len(first) == len(run.configs)
    line = benchmark.row(problem, len(run.configs), first)
    assert len(line["alarms"]) == alarms and ": why" in benchmark.said(line)
    second = run.records(benchmark.Record(tmp_path / "record.jsonl"), 60.0, 0)
    assert len(second) == alarms and all(found.outcome is Outcome.WRONG for found in second)
    assert run.records(benchmark.Record(None), 0.0, 0) == []  # no time
    totals = benchmark.Totals()
    totals.add(problem, (record.end(run.subject(config)) for config in run.configs))
    totals.add(problem, ["left", "left", "not compilable"])
    passed = len(run.configs) - alarms
    assert totals.table().splitlines()[2:] == [
        f"| logsumexp | bf16 | {passed} | {alarms} | 1 | 2 |",
        f"| all | | {passed} | {alarms} | 1 | 2 |",
    ]
