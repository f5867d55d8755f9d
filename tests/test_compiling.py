"""Compiling ahead, in the workers that do it for a study: nothing is compiled twice, and what differs is told apart."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.engine_jobs import Counted, Launched, compile_job, office_for
from tuner.compiling import CompileJob, launch_tensors
from tuner.estimate_funnel import EstimateFunnel
from tuner.operators import get
from tuner.outcomes import outcome_of
from tuner.resources import fits
from tuner.space import load_space
from tuner.tickets import TicketOffice
from tuner.trial import CompileReport, Outcome
from tuner.worker.messages import Done, Raised
from tuner.worker.process import Worker


@pytest.fixture(scope="module")
def office(machine) -> TicketOffice:
    return office_for(machine, Path(__file__).parent / "spaces_engine" / "faults.yaml")


@pytest.fixture(scope="module")
def worker(machine) -> Worker:
    return machine.fresh_worker("compiling")


def compiled(machine, office: TicketOffice, worker: Worker, text: str) -> CompileReport:
    reply = worker.run(compile_job(office, text, machine), 120)
    assert isinstance(reply, Done), reply
    return reply.value


def test_a_report_has_the_kernels_resources_and_the_grid(machine, office, worker):
    report = compiled(machine, office, worker, "num_warps=2")
    (kernel,) = report.kernels
    assert kernel.name == "faults_kernel"
    assert kernel.threads == 64
    assert 8 <= kernel.registers <= 255
    assert kernel.spill_bytes == 0
    assert report.grid == (132,)
    assert len(report.binary_hash) == 64
    assert fits(kernel, machine.device) is None


def test_a_second_process_compiles_nothing_again(machine, office, worker):
    job = compile_job(office, "num_warps=1,PROGRAMS_PER_SM=2", machine)
    first = worker.run(Counted(job), 120)
    worker.kill()
    second = worker.run(Counted(job), 120)
    assert first.value[1] in (0, 1)  # 0 where an earlier test of this session had it compiled
    assert second.value[1] == 0
    assert second.value[0].binary_hash == first.value[0].binary_hash


def test_a_launch_in_another_process_finds_what_was_compiled_ahead(machine, office, worker):
    half = get("softmax").problem({"rows": 200, "cols": 100}, "fp16")  # no other test compiles for it
    job = replace(compile_job(office, "num_warps=2", machine), problem=half)
    launch = Launched(job.source_path, job.launch_arguments, job.problem)
    assert worker.run(Counted(job), 120).value[1] == 1
    worker.kill()
    # The driver that stands in for a GPU is put there by any compile job; this one is for another dtype.
    worker.run(compile_job(office, "num_warps=2", machine), 120)
    assert worker.run(launch, 120).value == 0
    other = get("softmax").problem({"rows": 200, "cols": 96}, "fp16")  # 96 is divisible by 16, 100 is not
    assert worker.run(Launched(job.source_path, job.launch_arguments, other), 120).value == 1


def test_what_the_check_needs_at_small_shapes_is_compiled_ahead_with_the_rest(machine, worker):
    # Where a row is not a whole number of chunks this template takes another way: a kernel of its own.
    cluster = load_space("softmax").bind(get("softmax").problem({"rows": 8, "cols": 65536}, "bf16"), machine.device)
    office = TicketOffice(cluster, machine.workspace, machine.stack.triton)
    candidate = office.candidate(cluster.parse("template=cluster,CLUSTER=8,num_warps=4"))
    ahead = CompileJob(candidate.source_path, candidate.launch_arguments, cluster.problem, machine.device)
    small = get("softmax").check_problems(cluster.problem, candidate.tiles, candidate.max_tiles)
    assert worker.run(Counted(ahead), 120).value[1] == 1
    ragged = next(problem for problem in small if problem.sizes["cols"] % 65536)
    checked = replace(ahead, checked=(candidate.tiles, candidate.max_tiles))
    report, compilations = worker.run(Counted(checked), 120).value
    assert compilations == 1
    assert report.binary_hash == worker.run(Counted(ahead), 120).value[0].binary_hash
    worker.kill()
    worker.run(Counted(ahead), 120)  # puts the driver there that stands in for a GPU
    assert worker.run(Launched(ahead.source_path, ahead.launch_arguments, ragged), 120).value == 0


def test_a_gluon_kernel_is_counted_and_found_in_another_process(machine, worker):
    problem = get("attention_fwd").problem({"batch": 1, "heads": 2, "q_len": 300, "head_dim": 64}, "bf16")
    space = load_space("attention_fwd").bind(problem, machine.device)
    candidate = TicketOffice(space, machine.workspace, machine.stack.triton).candidate(space.parse("template=gluon"))
    ahead = CompileJob(candidate.source_path, candidate.launch_arguments, problem, machine.device)
    report, compilations = worker.run(Counted(ahead), 120).value
    assert compilations == 1
    kernel = report.kernels[0]
    assert kernel.threads == 384, "a warpgroup that loads and two that compute"
    assert kernel.shared_bytes <= machine.device.shared_bytes_per_block
    longer = get("attention_fwd").problem({"batch": 3, "heads": 4, "q_len": 700, "head_dim": 64}, "bf16")
    worker.kill()
    worker.run(Counted(ahead), 120)  # puts the driver there that stands in for a GPU
    assert worker.run(Launched(ahead.source_path, ahead.launch_arguments, problem), 120).value == 0
    assert worker.run(Launched(ahead.source_path, ahead.launch_arguments, longer), 120).value == 0


def test_a_parameter_that_no_kernel_sees_does_not_change_the_binary(machine, office, worker):
    plain = compiled(machine, office, worker, "IGNORED=1")
    assert compiled(machine, office, worker, "IGNORED=2").binary_hash == plain.binary_hash


def test_equal_code_from_two_sources_is_one_binary(machine, office, worker):
    # The switch changes launch() alone; line numbers in the machine code would tell the two files apart.
    plain, other = (office.bound.parse(f"FAULT={fault}") for fault in ("none", "exit"))
    assert office.variant(plain).hash != office.variant(other).hash
    assert (
        compiled(machine, office, worker, "FAULT=exit").binary_hash == compiled(machine, office, worker, "").binary_hash
    )


@pytest.mark.parametrize("text", ["num_warps=2", "PROGRAMS_PER_SM=2", "FAULT=wrong"])
def test_warps_grid_and_source_are_part_of_the_binary(machine, office, worker, text):
    plain = compiled(machine, office, worker, "")
    assert compiled(machine, office, worker, text).binary_hash != plain.binary_hash


def test_the_grid_alone_tells_two_launches_apart(machine, office, worker):
    one, two = (compiled(machine, office, worker, f"PROGRAMS_PER_SM={n}") for n in (1, 2))
    assert (one.grid, two.grid) == ((132,), (200,))
    assert one.kernels == two.kernels


def test_what_launch_does_on_the_host_is_part_of_it(machine, office, worker, tmp_path):
    job = compile_job(office, "num_warps=1", machine)
    source = Path(job.source_path).read_text(encoding="utf-8")
    assert source.endswith("\n")
    twice = tmp_path / "twice.py"
    twice.write_text(source + "    out.mul_(2.0)\n", encoding="utf-8")  # the last lines are those of launch()
    plain, doubled = (worker.run(j, 120) for j in (job, replace(job, source_path=str(twice))))
    assert isinstance(plain, Done) and isinstance(doubled, Done), (plain, doubled)
    assert doubled.value.kernels == plain.value.kernels
    assert doubled.value.binary_hash != plain.value.binary_hash


def test_a_type_error_in_a_kernel_is_a_compile_error_with_the_compilers_last_line(machine, office, worker):
    reply = worker.run(compile_job(office, "FAULT=type", machine), 120)
    assert isinstance(reply, Raised) and reply.usable
    outcome, reason = outcome_of(reply, "compile")
    assert outcome is Outcome.COMPILE_ERROR
    assert "128" in reason and "64" in reason
    assert "\n" not in reason
    assert reason.startswith("CompilationError: ")


def test_an_estimate_counts_instructions_and_a_measurement_does_not(machine, office, worker):
    job = compile_job(office, "", machine)
    assert worker.run(job, 120).value.instructions == ()
    counted = dict(worker.run(replace(job, count_instructions=True), 120).value.instructions)
    assert counted
    assert all(count >= 0 for count in counted.values())
    assert EstimateFunnel.estimates


def test_a_launch_that_starts_no_kernel_is_refused(machine, office, worker, tmp_path):
    path = tmp_path / "nothing.py"
    path.write_text("def launch(x, out):\n    pass\n")
    job = replace(compile_job(office, "", machine), source_path=str(path), launch_arguments={})
    reply = worker.run(job, 120)
    assert isinstance(reply, Raised)
    assert (reply.type_name, reply.message) == ("ValueError", "launch() started no kernel")


def test_tensors_without_storage_have_the_layout_of_the_real_ones():
    problem = get("softmax").problem({"rows": 6, "cols": 10, "row_stride": 16}, "bf16")
    fake = launch_tensors(problem)
    real = get("softmax").timing_inputs(problem, 0, "cpu")
    assert {name: tensor.device.type for name, tensor in fake.items()} == {"x": "meta", "out": "meta"}
    assert (fake["x"].shape, fake["x"].stride(), fake["x"].dtype) == (real["x"].shape, (16, 1), real["x"].dtype)
    assert (fake["out"].shape, fake["out"].stride(), fake["out"].dtype) == ((6, 10), (16, 1), real["x"].dtype)
