"""The whole GPU round: the GPU tests, then the benchmarks. Prints a short table last and writes RESULTS.md.

    python -m benchmarks.gpu_round --folder /tmp/round [--only tests,speed,tune,compare,peers,package,autotune,alarms]

Every step is a process of its own with a time limit, and what it measured is kept when a later one fails.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import importlib.util
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

STEPS = ("tests", "speed", "tune", "compare", "peers", "package", "autotune", "alarms")
# Operators, or families of them, with a comparison of their own, which tunes first; its table is in its log.
PEERS = ("cross_entropy", "rows", "softmax_topk", "attention_bwd", "attention_decode", "attention_varlen")


def run(name: str, command: list[str], folder: Path, limit_s: float) -> bool:
    """Run one step; its output goes to the terminal and to ``folder/NAME.log``. What outlives its limit is killed,
    with all that it started."""
    print(f"== {name}", flush=True)
    started = time.monotonic()
    environment = {**os.environ, "TUNER_CACHE": os.environ.get("TUNER_CACHE", str(folder / "cache"))}
    with (folder / f"{name}.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
            start_new_session=True,
        )
        assert process.stdout is not None
        alarm = threading.Timer(limit_s, _kill, [process])
        alarm.start()
        try:
            for line in process.stdout:
                log.write(line)
                print(line, end="", flush=True)
            code = process.wait()
        finally:
            alarm.cancel()
            _kill(process)
    print(f"== {name}: exit {code} after {time.monotonic() - started:.1f} s", flush=True)
    return code == 0


def _kill(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # nothing of it is left
        os.killpg(process.pid, signal.SIGKILL)


def run_tests(folder: Path) -> bool:
    """The GPU tests: those that judge times one after the other, the rest four at once where pytest-xdist is there.

    A line a test, so that what passed is known where the time is up. pytest-benchmark, where it is installed, warns
    of pytest-xdist, and a warning is an error here.
    """
    several = ["-n", "4", "--dist", "worksteal", "-p", "no:benchmark"] if importlib.util.find_spec("xdist") else []
    common = ["-m", "pytest", "tests/gpu", "-v", "--durations=8"]
    together = run("tests", [*common, "-m", "not alone", *several], folder, 400)
    return run("tests_alone", [*common, "-m", "alone"], folder, 200) and together


def environment_facts() -> dict[str, str]:
    """Card, driver and versions, as RESULTS.md names them."""
    code = (
        "import json; from tuner.probe import current_device, current_stack; d = current_device(); "
        "s = current_stack('measured', d); print(json.dumps({'card': d.name, 'stack': s.label, "
        "'compiler': s.compiler, 'runtime': s.runtime}))"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    facts: dict[str, str] = json.loads(output.splitlines()[-1])
    return {**facts, "date": datetime.datetime.now(datetime.UTC).date().isoformat()}


def alarms_table(rows: list[dict[str, Any]]) -> list[str]:
    """The check's false alarms and what it costs."""
    lines = [
        "## The check",
        "",
        "Configs in a random order, as many as there was time for; none of the shipped templates is wrong.",
        "",
        "| problem | checked of | false alarms | check ms, median | p95 | largest error/bound |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        cost = [row["check_ms_median"], row["check_ms_p95"]]
        median, p95 = (f"{ms:.0f}" if ms is not None else "-" for ms in cost)
        lines.append(
            f"| {row['problem']} | {row['checked']} of {row['configs']} | {len(row['alarms'])} | {median} | {p95} | "
            f"{row['worst_ratio'] or 0.0:.2f} |"
        )
    checked, alarms = sum(r["checked"] for r in rows), sum(len(r["alarms"]) for r in rows)
    return [*lines, "", f"{alarms} false alarms in {checked} checks.", ""]


def package_table(package: dict[str, Any]) -> list[str]:
    """What a call of an exported package costs, and what its rule for shapes that were not tuned loses."""
    lines = [
        "## An exported package",
        "",
        "The host's time from a call to its return, and the GPU's, of the package's callable, of the tuned kernel "
        "called directly, and of torch: `python -m benchmarks.package_overhead`.",
        "",
        "| operator | call | host µs | GPU µs |",
        "|---|---|---|---|",
    ]
    lines += [f"| {r['operator']} | {r['call']} | {r['host_us']:.1f} | {r['gpu_us']:.1f} |" for r in package["rows"]]
    return [*lines, "", *package["losses"], ""]


def results_page(
    facts: dict[str, str],
    compare: dict[str, Any] | None,
    speed: dict[str, Any] | None,
    alarms: list[dict[str, Any]] | None,
    package: dict[str, Any] | None,
) -> str:
    """RESULTS.md."""
    lines = [
        "# Results",
        "",
        f"{facts['card']}, {facts['stack']}, CUDA {facts['runtime']}, {facts['compiler']}; {facts['date']}. "
        "Printed by `python -m benchmarks.gpu_round`.",
        "",
    ]
    if compare:
        copy = compare["copy"]
        lines += [
            "## Softmax, bf16",
            "",
            f"TB/s counting one read and one write; copy bandwidth of the same run: {copy:.2f} TB/s. Every column was "
            "timed in the same process, interleaved, each call a CUDA graph, with `triton.testing.do_bench` (median; "
            "it clears the L2). Inductor is `torch.compile` in the mode `max-autotune-no-cudagraphs`, captured as the "
            "others are: `max-autotune`'s own graphs copy the input first.",
            "",
            "| rows x columns | tuner | of copy | torch | Inductor | Liger | quack | copy, same size | config |",
            "|---|---|---|---|---|---|---|---|---|",
        ]
        for row in compare.get("softmax", []):
            libraries = " | ".join(f"{row[name]:.2f}" if name in row else "-" for name in ("liger", "quack"))
            lines.append(
                f"| {row['rows']} x {row['cols']} | **{row['tuner']:.2f}** | {row['tuner'] / copy:.2f} | "
                f"{row['torch']:.2f} | {row['inductor']:.2f} | {libraries} | {row['copy']:.2f} | `{row['config']}` |"
            )
        lines += [
            "",
            "## Attention forward, bf16",
            "",
            "TFLOP/s counting 4 B H N² D, half of it for causal; timed as above.",
            "",
            "| B H N D | mask | tuner | SDPA flash | SDPA cuDNN | of cuDNN | config |",
            "|---|---|---|---|---|---|---|",
        ]
        ratios = []
        for row in compare.get("attention", []):
            ratios.append(row["tuner"] / row["sdpa_cudnn"])
            shape = " ".join(str(n) for n in row["shape"])
            lines.append(
                f"| {shape} | {'causal' if row['causal'] else 'full'} | **{row['tuner']:.0f}** | "
                f"{row['sdpa_flash']:.0f} | {row['sdpa_cudnn']:.0f} | {ratios[-1]:.2f} | `{row['config']}` |"
            )
        lines += ["", f"On average {sum(ratios) / max(1, len(ratios)):.3f} of cuDNN.", ""]
    if speed:
        lines += [
            "## Search, attention 4 32 4096 128 full",
            "",
            "Each from an empty cache; `triton.autotune` is Triton's own `Autotuner` over the same configs, stopped "
            "after 60 s.",
            "",
            "| run | configs | wall s | GPU busy | best µs |",
            "|---|---|---|---|---|",
        ]
        for name, title in (("budget", "`tuner tune --time 60`"), ("exhaustive", "every config of the space")):
            if name in speed:
                r = speed[name]
                lines.append(
                    f"| {title} | {r['trials']} of {r['space']} | {r['seconds']:.0f} | "
                    f"{100 * r['gpu_busy_share']:.0f} % | {r['median_us']:.1f} |"
                )
        if "autotune" in speed:
            autotune = speed["autotune"]
            reached = f"{autotune['best']['us']:.1f}" if autotune["best"] else "-"
            lines.append(f"| `triton.autotune` | {autotune['configs']} | {autotune['seconds']:.0f} | | {reached} |")
        if "budget" in speed and "exhaustive" in speed:
            share = 100 * speed["exhaustive"]["median_us"] / speed["budget"]["median_us"]
            lines += ["", f"The 60 s study reached {share:.1f} % of the exhaustive best."]
        lines.append("")
    if alarms:
        lines += alarms_table(alarms)
    if package:
        lines += package_table(package)
    return "\n".join(lines)


def read(path: Path) -> Any:
    """A step's figures, or None where it did not get that far."""
    return json.loads(path.read_text()) if path.exists() else None


def main() -> None:
    """Run the steps, then write and print the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--only", default=",".join(STEPS))
    parser.add_argument("--softmax-seconds", default="25")
    parser.add_argument("--attention-seconds", default="45")
    parser.add_argument("--peer-seconds", default="20")
    parser.add_argument("--alarm-seconds", default="12")
    arguments = parser.parse_args()
    folder: Path = arguments.folder
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what runs is ended with this program
    folder.mkdir(parents=True, exist_ok=True)
    wanted = arguments.only.split(",")
    database = str(folder / "tuner.db")
    passed = {}
    if "tests" in wanted:
        passed["tests"] = run_tests(folder)
    if "speed" in wanted:
        out = str(folder / "search_speed.json")
        command = ["-m", "benchmarks.search_speed", "--folder", str(folder / "speed"), "--out", out, "--db", database]
        passed["speed"] = run("speed", [*command, "--parts", "budget,exhaustive"], folder, 300)
    if "tune" in wanted:
        seconds = [
            "--softmax-seconds", arguments.softmax_seconds, "--attention-seconds", arguments.attention_seconds
        ]  # fmt: skip
        skip = ["--skip-first-attention"] if passed.get("speed") else []
        command = ["-m", "benchmarks.tune_all", "--db", database, *seconds, *skip]
        passed["tune"] = run("tune", command, folder, 500)
    if "compare" in wanted:
        out = str(folder / "compare.json")
        passed["compare"] = run("compare", ["-m", "benchmarks.compare", "--db", database, "--out", out], folder, 200)
    if "peers" in wanted:
        for name in PEERS:
            out = str(folder / f"compare_{name}.json")
            command = ["-m", f"benchmarks.compare_{name}", "--db", database, "--out", out]
            passed[name] = run(f"compare_{name}", [*command, "--tune-seconds", arguments.peer_seconds], folder, 590)
    if "package" in wanted:
        command = ["-m", "benchmarks.package_overhead", "--db", database]
        passed["package"] = run("package", [*command, "--out", str(folder / "package_overhead.json")], folder, 60)
    if "autotune" in wanted:
        out = str(folder / "search_speed.json")
        command = ["-m", "benchmarks.search_speed", "--folder", str(folder / "speed"), "--out", out]
        passed["autotune"] = run("autotune", [*command, "--parts", "autotune"], folder, 120)
    if "alarms" in wanted:
        out = str(folder / "false_alarms.json")
        command = ["-m", "benchmarks.false_alarms", "--out", out, "--only", "softmax", "attention_fwd"]
        command += ["--seconds", arguments.alarm_seconds]
        passed["alarms"] = run("alarms", command, folder, 590)
    figures = (
        read(folder / f"{name}.json") for name in ("compare", "search_speed", "false_alarms", "package_overhead")
    )
    page = results_page(environment_facts(), *figures)
    (folder / "RESULTS.md").write_text(page + "\n")
    print(page)
    print("  ".join(f"{name}: {'ok' if ok else 'FAILED'}" for name, ok in passed.items()))
    sys.exit(0 if all(passed.values()) else 1)


if __name__ == "__main__":
    main()
