"""Files of the user's own: what is read of them, what is taken for granted, and what is refused with a remedy."""

from __future__ import annotations

import functools

import pytest
import torch

from tests.checkout import checkout
from tuner.check_plan import plan
from tuner.checking import check
from tuner.errors import UsageError
from tuner.operators import get
from tuner.own_kernel import read_own_kernel

SOFTMAX = get("softmax").problem({"rows": 8, "cols": 1000}, "bf16")
ATTENTION = get("attention_fwd").problem({"batch": 1, "heads": 2, "q_len": 100, "head_dim": 64}, "fp32")
LAUNCH = "def launch(x, out, *, BLOCK, num_warps=4): ...\n"


def read(tmp_path, text):
    path = tmp_path / "mine.py"
    path.write_text(text)
    return read_own_kernel(path)


def candidate(tmp_path, text, config="", tiles="", precision="", problem=SOFTMAX):
    return read(tmp_path, text).candidate(problem, config, tiles, precision)


def refused(tmp_path, text, *words, **options):
    with pytest.raises(UsageError) as error:
        candidate(tmp_path, text, **options)
    for word in words:
        assert word in str(error.value)
    assert "\n" not in str(error.value)


def test_what_the_file_says_of_itself_is_used_and_the_command_line_goes_before(tmp_path):
    said = 'CONFIG = {"BLOCK": 128}\nTILES = {"cols": 128}\nPRECISION = {"accumulator": "fp16"}\n'
    made, guessed = candidate(tmp_path, said + LAUNCH)
    assert (made.launch_arguments, made.tiles, made.max_tiles, guessed) == ({"BLOCK": 128}, {"cols": 128}, {}, "")
    assert (made.profile.accumulator, made.profile.tiles, made.profile.output) == ("fp16", 8, "bf16")
    other, _ = candidate(tmp_path, said + LAUNCH, "BLOCK=64,num_warps=8", "cols=64", "accumulator=fp32")
    assert other.launch_arguments == {"BLOCK": 64, "num_warps": 8} and other.tiles == {"cols": 64}
    assert other.profile.accumulator == "fp32" and other.key != made.key and other.promise != made.promise


def test_tiles_are_guessed_from_block_arguments_and_that_is_said(tmp_path):
    made, guessed = candidate(tmp_path, LAUNCH, "BLOCK=256")
    assert made.tiles == {"cols": 256} and guessed == "cols in tiles of 256 (BLOCK)"
    whole, guessed = candidate(tmp_path, LAUNCH, "BLOCK=1024")
    assert whole.max_tiles == {"cols": 1} and "never two along cols" in guessed
    attention = "def launch(q, k, v, out, lse, *, scale, BLOCK_M, BLOCK_N): ...\n"
    made, guessed = candidate(tmp_path, attention, "BLOCK_M=32,BLOCK_N=16", problem=ATTENTION)
    assert made.tiles == {"q_len": 32, "kv_len": 16} and "(BLOCK_M)" in guessed
    assert (made.profile.p, made.profile.dot, made.profile.tiles) == ("fp32", "ieee", 7)
    gradients = "def launch(q, k, v, out, lse, dout, dq, dk, dv, *, scale, BLOCK_M, BLOCK_N): ...\n"
    problem = get("attention_bwd").problem(dict(ATTENTION.sizes), "fp16")
    made, _ = candidate(tmp_path, gradients, "BLOCK_M=32,BLOCK_N=16", problem=problem)
    assert made.tiles == {"q_len": 32, "kv_len": 16} and made.profile.p == "fp16"


def test_where_the_file_says_nothing_long_tiles_are_taken_and_what_to_give_is_said(tmp_path):
    silent = "def launch(x, out): ...\n"
    made, guessed = candidate(tmp_path, silent)
    assert made.tiles == {"cols": 1024} and made.max_tiles == {}
    assert "cols in tiles of 1024 at most (a guess" in guessed and "give --tiles cols=N" in guessed
    # The bound allows for as many tiles as there may be.
    assert made.profile.tiles == -(-1000 // 16)
    attention = "def launch(q, k, v, out, lse, *, scale): ...\n"
    assert candidate(tmp_path, attention, problem=ATTENTION)[0].tiles == {"kv_len": 128}
    told, guessed = candidate(tmp_path, silent, tiles="cols=2048")
    assert told.tiles == {"cols": 2048} and guessed == ""


def test_a_kernel_whose_block_stands_in_the_file_gets_several_of_its_tiles(tmp_path):
    """With tiles of 64, as were guessed, the inputs that show it had one of its tiles."""
    made, _ = candidate(tmp_path, "def launch(x, out):\n    kernel[(8,)](x, out, BLOCK=512)\n")

    def maximum_not_carried(x, out, carry=False):
        m, total = torch.full((len(x), 1), -torch.inf), torch.zeros(len(x), 1)
        for tile in x.float().split(512, dim=1):
            top = tile.amax(1, keepdim=True)
            m_new = torch.maximum(m, top) if carry else torch.where(top == -torch.inf, m, top)
            safe = torch.where(m_new == -torch.inf, 0.0, m_new)
            total, m = total * (m - safe).exp() + (tile - safe).exp().sum(1, keepdim=True), m_new
        out.copy_((x.float() - m).exp() / total)

    operator = get("softmax")

    def report(launch, tiles):
        checks = plan(operator, SOFTMAX, tiles, {}, made.profile, full_size=False)
        return check(launch, operator, checks, "cpu", 0)

    assert report(functools.partial(maximum_not_carried, carry=True), made.tiles).passed
    assert report(maximum_not_carried, {"cols": 64}).passed
    refused = report(maximum_not_carried, made.tiles)
    assert not refused.passed and refused.families[-1].family == "falling"
    assert refused.families[-1].problem.startswith("softmax rows=7 cols=1706 ")


def test_a_rendered_file_says_its_config_itself(tmp_path):
    import tuner

    source = tuner.render(tuner.make_problem("softmax", {"rows": 64, "cols": 4096}, "fp16"), config="template=online")
    made, _ = candidate(tmp_path, source)
    assert made.launch_arguments["BLOCK_COLS"] == made.tiles["cols"]


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        ("def launch(x, out:", {}, ("mine.py:1: ", "function launch")),
        ("x = 1\n", {}, ("defines no function launch",)),
        ("def launch(x, *, BLOCK): ...\n", {}, ("launch() has no out", "softmax gives it x, out")),
        (LAUNCH, {}, ("launch() needs BLOCK", "--config BLOCK=64", "CONFIG")),
        (LAUNCH, {"config": "BLOKC=64"}, ("takes no BLOKC", "did you mean `BLOCK`?")),
        (LAUNCH, {"config": "BLOCK=64", "tiles": "kols=3"}, ("softmax has no kols", "did you mean `cols`?")),
        (LAUNCH, {"config": "BLOCK=64", "tiles": "cols=0"}, ("cols must be a whole number of at least 1",)),
        (LAUNCH, {"config": "BLOCK=64", "precision": "dott=tf32"}, ("precision has no dott", "did you mean `dot`?")),
        (LAUNCH, {"config": "BLOCK=64", "precision": "dot=int8"}, ("`dot` must be one of",)),
        ("CONFIG = dict(BLOCK=64)\n" + LAUNCH, {}, ("mine.py:1: CONFIG must be a dict of literals",)),
    ],
)
def test_what_does_not_fit_is_refused_with_what_to_do(tmp_path, text, options, words):
    refused(tmp_path, text, *words, **options)


def test_a_file_that_is_not_there_or_is_no_text_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"nothing\.py: cannot be read: No such file"):
        read_own_kernel(tmp_path / "nothing.py")
    (tmp_path / "binary.py").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="it is no text"):
        read_own_kernel(tmp_path / "binary.py")


def test_nothing_of_the_file_is_run_when_it_is_read(tmp_path):
    made = read(tmp_path, "raise SystemExit(3)\n" + LAUNCH)
    assert made.required == ("BLOCK",) and made.optional == ("num_warps",)


PLAIN = checkout() / "tests/kernels/softmax_plain.py"


def test_a_file_is_checked_and_a_wrong_one_gets_its_likely_cause(tmp_path):
    import tuner

    right = tuner.check(SOFTMAX, file=PLAIN, config="BLOCK_COLS=64,PROGRAMS=3", gpu=False)
    assert right.passed, right.reason
    assert (
        right.subject == f"{PLAIN} with BLOCK_COLS=64,PROGRAMS=3; taken: cols in tiles of 64 (BLOCK_COLS)"
        and right.cause == ""
    )
    wrong = tmp_path / "wrong.py"
    wrong.write_text(PLAIN.read_text().replace("l = l * alpha\n", "l = l\n"))
    report = tuner.check(SOFTMAX, file=wrong, config="BLOCK_COLS=64,PROGRAMS=3", gpu=False)
    assert not report.passed and "what is carried from tile to tile" in report.cause
    assert type(report).from_json(report.as_json()) == report


def test_a_file_that_cannot_run_is_one_line_and_an_answer_as_a_wrong_one_is(tmp_path, capsys):
    import tuner
    from tuner.cli import run

    broken, words = tmp_path / "broken.py", ["--shape", "rows=8,cols=1000", "--dtype", "bf16", "--config", "BLOCK=64"]
    broken.write_text(LAUNCH.replace("...", "raise ValueError('no rows')"))
    assert run(["check", "softmax", *words, "--file", str(broken)]) == 1
    assert capsys.readouterr().err.endswith("broken.py: crashed: ValueError: no rows (line 1 of broken.py)\n")
    broken.write_text("import nothing_that_is_there\n" + LAUNCH)
    with pytest.raises(tuner.TunerError, match=r"broken\.py: crashed: ModuleNotFoundError: No module named") as caught:
        tuner.check(SOFTMAX, file=broken, config="BLOCK=64", gpu=False)
    assert caught.value.exit_code == 1
    with pytest.raises(UsageError, match="a file or a search space, not both"):
        tuner.check(SOFTMAX, file=broken, space="x.yaml")
    with pytest.raises(UsageError, match="tiles and precision go with a file"):
        tuner.check(SOFTMAX, tiles="cols=64")


def test_of_fp8_scales_are_given_and_the_sums_of_its_products_are_those_of_a_tile(tmp_path):
    problem = get("attention_fwd").problem(dict(ATTENTION.sizes), "fp8")
    launch = "def launch(q, k, v, q_scale, k_scale, v_scale, out, lse, *, scale, BLOCK_M, BLOCK_N): ...\n"
    made, _ = candidate(tmp_path, launch, "BLOCK_M=32,BLOCK_N=16", problem=problem)
    profile = made.profile
    assert (profile.input, profile.output, profile.p, profile.dot, profile.pv_terms) == (
        "fp8",
        "bf16",
        "fp8",
        "8bit",
        16,
    )
    without = launch.replace("v_scale, ", "")
    refused(tmp_path, without, "launch() has no v_scale", config="BLOCK_M=32,BLOCK_N=16", problem=problem)
