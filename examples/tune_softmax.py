"""Tune one softmax from Python, and write its winner as a file that needs torch and Triton only.

    python examples/tune_softmax.py [OUTPUT]        (default: softmax_kernel.py)

It measures where there is a GPU, and estimates elsewhere. A second run finds everything known, and is quick.
"""

import sys
from pathlib import Path

import tuner


def main(output: Path) -> None:
    """Tune, say what won, write the winner."""
    problem = tuner.make_problem("softmax", {"rows": 512, "cols": 4096}, "fp16")
    result = tuner.tune(problem, trials=12)
    if result.winner is None:
        sys.exit(f"interrupted after {result.study.trials} trials; run it again to go on")
    record = result.winner.record
    kind = "estimated" if result.estimated else "measured"
    print(f"{result.winner.config.label}\n{record.median_us:.2f} us ({kind}); {record.verdict}")
    source = tuner.render(problem, best=True, device=result.winner.device.name, estimated=result.estimated)
    output.write_text(source, encoding="utf-8")
    print(f"wrote {output}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "softmax_kernel.py"))
