from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.spaces import H200, SPACE, TEMPLATE, Toy, lookup, write_space
from tuner import operators, shipped
from tuner.config import Config, Value
from tuner.errors import ConfigError, ProblemError, SpaceError
from tuner.precision import PrecisionProfile
from tuner.problem import Problem
from tuner.space import BoundSpace, load_space


def problem(cols: int, causal: bool = False, dtype: str = "bf16") -> Problem:
    return Toy().problem({"rows": 8, "cols": cols}, dtype, {"causal": causal})


def bind(
    folder: Path, text: str = SPACE, cols: int = 4096, causal: bool = False, template: str = TEMPLATE
) -> BoundSpace:
    path = write_space(folder, text, template)
    return load_space(path, lookup, folder).bind(problem(cols, causal), H200)


def brute_force(causal: bool, cols: int) -> list[dict[str, object]]:
    """The valid combinations of the toy's space, by its constraints written out in Python."""
    power = 1
    while power < cols:
        power *= 2
    return [
        {"FAST": fast, "BLOCK": block, "num_warps": warps, "PER_SM": per_sm}
        for fast, block, warps, per_sm in itertools.product([True, False], [64, 128, 256], [1, 2, 4], [1, 2])
        if block <= power and (block >= 64 * warps or causal)
    ]


def chosen(config: Config) -> dict[str, object]:
    return {name: config.values[name] for name in config.chosen}


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("cols", [64, 100, 200, 4096])
def test_configs_are_the_valid_combinations_in_the_order_of_the_file(tmp_path: Path, causal: bool, cols: int) -> None:
    bound = bind(tmp_path, cols=cols, causal=causal)
    expected = brute_force(causal, cols)
    assert [chosen(config) for config in bound.configs()] == expected
    assert bound.size() == len(expected)


def test_a_config_has_what_follows_from_its_choices(tmp_path: Path) -> None:
    config = bind(tmp_path).config("tiled", {"FAST": True, "BLOCK": 128, "num_warps": 2, "PER_SM": 2})
    assert config.switches == (("FAST", True), ("IS_CAUSAL", False))
    assert config.launch == (("BLOCK", 128), ("PER_SM", 2), ("PROGRAMS", 264), ("num_warps", 2))
    assert config.label == "template=tiled,FAST=True,BLOCK=128,num_warps=2,PER_SM=2"


def test_launch_arguments_are_what_launch_takes_without_switches(tmp_path: Path) -> None:
    bound = bind(tmp_path)
    (config,) = bound.plain()
    assert bound.launch_arguments(config) == {"BLOCK": 256, "PROGRAMS": 264, "num_warps": 4}
    assert list(bound.launch_arguments(config)) == ["BLOCK", "PROGRAMS", "num_warps"]


def test_tiles_precision_and_template_of_a_config(tmp_path: Path) -> None:
    bound = bind(tmp_path, cols=1000)
    (config,) = bound.plain()
    assert bound.tiles(config) == {"cols": 256}
    assert bound.max_tiles(config) == {"rows": 1}
    assert bound.precision(config) == PrecisionProfile("bf16", "bf16", p="bf16", dot="16bit", tiles=5)
    assert bound.template(config).launch_parameters == (
        "scale", "FAST", "IS_CAUSAL", "BLOCK", "PROGRAMS", "num_warps",
    )  # fmt: skip


def test_tiles_of_the_precision_are_by_default_those_of_the_last_tiled_axis(tmp_path: Path) -> None:
    text = SPACE.replace("      tiles: cdiv(cols, BLOCK) + 1\n", "")
    bound = bind(tmp_path, text, cols=1000)
    assert bound.precision(bound.plain()[0]).tiles == 4


def test_a_precision_that_cannot_be_says_where(tmp_path: Path) -> None:
    bound = bind(tmp_path, SPACE.replace("dot: 16bit", "dot: dtype"))
    with pytest.raises(SpaceError, match=r"toy.yaml:22: templates.tiled.precision: `dot` must be one of"):
        bound.precision(bound.plain()[0])


def test_refusals_account_for_every_combination_that_is_not_valid(tmp_path: Path) -> None:
    bound = bind(tmp_path, cols=100)
    # 36 combinations. BLOCK=256 is too wide: 12. Of the other 24, 64 with 2 or 4 warps (8) and 128 with 4 (4) fall.
    assert bound.refusals() == {"BLOCK <= next_power_of_2(cols)": 12, "BLOCK >= 64 * num_warps or IS_CAUSAL": 12}
    assert bound.combinations() == 36
    assert bound.size() == 12


def test_the_domain_leaves_out_choices_that_are_refused_on_their_own(tmp_path: Path) -> None:
    assert bind(tmp_path, cols=100).domain("tiled") == {
        "FAST": (True, False),
        "BLOCK": (64, 128),
        "num_warps": (1, 2, 4),
        "PER_SM": (1, 2),
    }


def test_a_switch_given_as_an_expression_is_fixed_by_the_problem(tmp_path: Path) -> None:
    bound = bind(tmp_path, causal=True)
    assert "IS_CAUSAL" not in bound.domain("tiled")
    assert {dict(config.switches)["IS_CAUSAL"] for config in bound.configs()} == {True}


def test_a_template_whose_condition_is_false_is_refused_with_the_values(tmp_path: Path) -> None:
    bound = bind(tmp_path, cols=131072)
    assert bound.templates == ()
    assert bound.refused == {"tiled": "where: cols <= 65536 is false (cols=131072)"}
    assert (bound.size(), list(bound.configs()), bound.plain()) == (0, [], ())
    with pytest.raises(ConfigError, match=r"no template of toy applies to toy rows=8 cols=131072 bf16: tiled: where"):
        bound.parse("BLOCK=64")
    with pytest.raises(ConfigError, match=r"template tiled does not apply .* cols <= 65536 is false"):
        bound.config("tiled", {})


def test_a_template_without_a_valid_config_is_refused_with_the_constraint_that_refuses_most(tmp_path: Path) -> None:
    bound = bind(tmp_path, cols=32)
    assert bound.refused == {"tiled": "no valid config: `BLOCK <= next_power_of_2(cols)` refuses all of them (cols=32)"}


class TestPlain:
    def test_it_is_what_the_file_says(self, tmp_path: Path) -> None:
        (config,) = bind(tmp_path).plain()
        assert chosen(config) == {"FAST": False, "BLOCK": 256, "num_warps": 4, "PER_SM": 2}

    def test_a_number_that_is_no_choice_becomes_the_nearest_below(self, tmp_path: Path) -> None:
        text = SPACE.replace("BLOCK: min(256, next_power_of_2(cols))", "BLOCK: 100 + itemsize")
        (config,) = bind(tmp_path, text, causal=True).plain()
        assert config.values["BLOCK"] == 64

    def test_a_number_below_every_choice_becomes_the_smallest(self, tmp_path: Path) -> None:
        text = SPACE.replace("BLOCK: min(256, next_power_of_2(cols))", "BLOCK: itemsize")
        (config,) = bind(tmp_path, text, causal=True).plain()
        assert config.values["BLOCK"] == 64

    def test_where_constraints_refuse_it_the_fewest_names_are_changed(self, tmp_path: Path) -> None:
        (config,) = bind(tmp_path, cols=100).plain()  # BLOCK=128 with 4 warps is refused; 2 warps are not
        assert chosen(config) == {"FAST": False, "BLOCK": 128, "num_warps": 2, "PER_SM": 2}

    def test_an_expression_of_another_kind_than_the_choices_is_refused(self, tmp_path: Path) -> None:
        text = SPACE.replace("FAST: false", "FAST: dtype")
        with pytest.raises(SpaceError) as caught:
            bind(tmp_path, text)
        assert str(caught.value) == (
            f"{tmp_path / 'toy.yaml'}:25: templates.tiled.plain.FAST: `dtype` gives 'bf16' (with dtype='bf16'); "
            "it must be one of the choices True, False"
        )

    def test_it_is_always_valid(self, tmp_path: Path) -> None:
        for cols in (33, 64, 65, 127, 128, 129, 255, 256, 257, 65536):
            bound = bind(tmp_path, cols=cols)
            for config in bound.plain():
                assert config in list(bound.configs())


class TestConfig:
    GOOD: ClassVar[dict[str, Value]] = {"FAST": True, "BLOCK": 128, "num_warps": 2, "PER_SM": 1}

    @pytest.mark.parametrize(
        ("change", "says"),
        [
            ({"num_warps": 4}, r"`BLOCK >= 64 \* num_warps or IS_CAUSAL` is false \(BLOCK=128, num_warps=4, IS_"),
            ({"BLOCK": 96}, r"BLOCK=96 is not in the search space; its choices are 64, 128, 256"),
            ({"BLOCK": "128"}, r"BLOCK='128' is not in the search space"),
            ({"FAST": 1}, r"FAST=1 is not in the search space; its choices are True, False"),
            ({"num_warps": True}, r"num_warps=True is not in the search space"),
            ({"BLOK": 3}, r"no parameter `BLOK` \(did you mean `BLOCK`\?\); known: FAST, BLOCK, num_warps, PER_SM, IS"),
            ({"IS_CAUSAL": True}, r"IS_CAUSAL is False here \(it follows from `causal`\), not True; leave it out"),
            ({"PROGRAMS": 7}, r"PROGRAMS is 132 here \(it follows from `sms \* PER_SM`\), not 7"),
        ],
    )
    def test_one_that_is_not_in_the_space_is_refused(self, tmp_path: Path, change: dict[str, Value], says: str) -> None:
        bound = bind(tmp_path)
        assert bound.is_valid("tiled", self.GOOD)
        assert not bound.is_valid("tiled", self.GOOD | change)
        with pytest.raises(ConfigError, match=says):
            bound.config("tiled", self.GOOD | change)

    def test_a_missing_name_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="template tiled: no value for BLOCK, PER_SM"):
            bind(tmp_path).config("tiled", {"FAST": True, "num_warps": 1})

    def test_an_unknown_template_is_refused(self, tmp_path: Path) -> None:
        bound = bind(tmp_path)
        assert not bound.is_valid("tilde", self.GOOD)
        with pytest.raises(ConfigError, match=r"toy has no template `tilde` \(did you mean `tiled`\?\); known: tiled"):
            bound.config("tilde", self.GOOD)

    def test_the_choices_of_the_file_give_the_types(self, tmp_path: Path) -> None:
        config = bind(tmp_path).config("tiled", self.GOOD | {"BLOCK": 128.0})
        assert type(config.values["BLOCK"]) is int

    def test_all_values_of_a_config_give_it_again(self, tmp_path: Path) -> None:
        bound = bind(tmp_path)
        for config in bound.configs():
            assert bound.config("tiled", config.values) == config

    def test_a_config_of_another_space_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="gives no value for FAST, num_warps, PER_SM; it is of another search"):
            bind(tmp_path).tiles(Config("tiled", (), (("BLOCK", 64),)))


class TestParse:
    def test_what_is_not_named_is_as_in_the_plain_config(self, tmp_path: Path) -> None:
        config = bind(tmp_path).parse(" num_warps=2, FAST = TRUE ,")
        assert chosen(config) == {"FAST": True, "BLOCK": 256, "num_warps": 2, "PER_SM": 2}

    def test_no_text_is_the_plain_config(self, tmp_path: Path) -> None:
        bound = bind(tmp_path)
        assert bound.parse("") == bound.plain()[0]

    def test_the_label_of_a_config_gives_it_again(self, tmp_path: Path) -> None:
        bound = bind(tmp_path)
        for config in bound.configs():
            assert bound.parse(config.label) == config

    def test_values_of_every_kind_are_read(self, tmp_path: Path) -> None:
        text = SPACE.replace("PER_SM: [1, 2]", "PER_SM: [1, 2]\n      maxnreg: [none, few]\n      alpha: [0.5, 1.5]")
        text = text.replace("PER_SM: 2\n", "PER_SM: 2\n      maxnreg: none\n      alpha: 0.5\n")
        template = TEMPLATE.replace("num_warps)", "num_warps, maxnreg, alpha)")
        config = bind(tmp_path, text, template=template).parse("maxnreg=few,alpha=1.5,FAST=false")
        assert chosen(config)["maxnreg"] == "few"
        assert chosen(config)["alpha"] == 1.5

    @pytest.mark.parametrize(
        ("text", "says"),
        [
            ("BLOCK", "cannot read `BLOCK` in a config; write name=value"),
            ("=3", "cannot read `=3`"),
            ("BLOCK=", "cannot read `BLOCK=`"),
            ("BLOCK=64,BLOCK=128", "BLOCK is given twice"),
            ("BLOCKS=64", r"no parameter `BLOCKS` \(did you mean `BLOCK`\?\)"),
            ("BLOCK=65", "BLOCK=65 is not in the search space"),
            ("BLOCK=nan", "BLOCK='nan' is not in the search space"),
            ("template=tile", r"no template `tile` \(did you mean `tiled`\?\)"),
            ("BLOCK=64", r"`BLOCK >= 64 \* num_warps or IS_CAUSAL` is false \(BLOCK=64, num_warps=4"),
        ],
    )
    def test_text_that_names_no_config_is_refused(self, tmp_path: Path, text: str, says: str) -> None:
        with pytest.raises(ConfigError, match=says):
            bind(tmp_path).parse(text)


class TestFitWithTheTemplate:
    def test_a_switch_that_launch_does_not_take_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(SpaceError) as caught:
            bind(tmp_path, template=TEMPLATE.replace("FAST", "QUICK"))
        assert caught.value.line == 7
        assert caught.value.key == "templates.tiled.switches.FAST"
        assert caught.value.problem == "launch() of tiled.py has no such parameter"

    def test_a_parameter_that_does_nothing_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(SpaceError, match=r"launch\(\) of tiled.py does not take it, and no expression uses it"):
            bind(tmp_path, SPACE.replace("sms * PER_SM", "sms * 2"))


class TestExpressionsThatHaveNoValue:
    @pytest.mark.parametrize(
        ("old", "new", "says"),
        [
            ("BLOCK <= next_power_of_2(cols)", "cols % BLOCK", r"constraints\[0\]: `cols % BLOCK` gives 0, which is"),
            ("BLOCK <= next_power_of_2(cols)", "cols // (BLOCK - 64) > 0", r"constraints\[0\]: .*division by zero"),
            ("PROGRAMS: sms * PER_SM", "PROGRAMS: None if PER_SM > 0 else 1", r"derived.PROGRAMS: .* gives None"),
            ("where: cols <= 65536", "where: cols", r"where: `cols` gives 4096, which is neither true nor false"),
            ("IS_CAUSAL: causal", "IS_CAUSAL: causal + dtype", r"switches.IS_CAUSAL: .* takes numbers"),
            ("tiles: {cols: BLOCK}", "tiles: {cols: BLOCK - 256}", r"tiles.cols: `BLOCK - 256` gives -192 .*number"),
        ],
    )
    def test_they_say_file_line_and_values(self, tmp_path: Path, old: str, new: str, says: str) -> None:
        text = SPACE.replace(old, new)
        with pytest.raises(SpaceError, match=rf"toy.yaml:\d+: templates.tiled.{says}"):
            bound = bind(tmp_path, text)
            bound.tiles(next(bound.configs()))

    def test_an_earlier_constraint_guards_a_later_one(self, tmp_path: Path) -> None:
        text = SPACE.replace("- BLOCK <= next_power_of_2(cols)", "- BLOCK > 64\n      - cols // (BLOCK - 64) > 0")
        assert bind(tmp_path, text, causal=True).size() == 24


def test_a_problem_of_another_operator_is_refused(tmp_path: Path) -> None:
    space = load_space(write_space(tmp_path), lookup, tmp_path)
    with pytest.raises(ProblemError, match="is a search space for toy, not for softmax"):
        space.bind(Problem("softmax", (), "bf16"), H200)


def test_a_name_that_is_no_operator_and_no_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ProblemError, match="there is no operator 'toi'"):
        load_space("toi", lookup)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SpaceError, match=r"toi.yaml: no such file"):
        load_space("toi.yaml", lookup, tmp_path)


def wide(values: int, names: int, constraint: str) -> str:
    """A space of ``values ** names`` combinations."""
    lists = "".join(f"      P{i}: {list(range(1, values + 1))}\n" for i in range(names))
    plain = "".join(f"      P{i}: 1\n" for i in range(names))
    return (
        f"operator: toy\ntemplates:\n  tiled:\n    source: tiled.py\n    tiles: {{cols: 1}}\n    parameters:\n{lists}"
        f"    constraints:\n      - {constraint}\n    plain:\n{plain}"
    )


def test_a_hundred_thousand_configs_are_counted_in_about_a_second(tmp_path: Path) -> None:
    text = wide(10, 5, "P0 * P1 * P2 * P3 * P4 <= 100000")
    bound = bind(tmp_path, text, template=TEMPLATE.replace("FAST", "P0, P1, P2, P3, P4"))
    start = time.perf_counter()
    assert bound.size() == 100_000
    assert time.perf_counter() - start < 5  # about 0.3 s on an idle core


def test_names_that_no_constraint_uses_cost_nothing_to_count(tmp_path: Path) -> None:
    text = wide(20, 12, "P11 + P10 <= 20")
    template = TEMPLATE.replace("FAST", ", ".join(f"P{i}" for i in range(12)))
    bound = bind(tmp_path, text, template=template)
    start = time.perf_counter()
    assert bound.size() == 20**10 * 190
    assert next(bound.configs()) == bound.plain()[0]
    assert time.perf_counter() - start < 1


small = st.integers(1, 3)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.sampled_from(
            [
                "P0 < P1",
                "P1 + P2 != P3",
                "D == 4 or P3 > 1",
                "P2 * P3 <= cols // 1024",
                "P0 in [1, 3]",
                "E > 2",
                "cols > 3",
            ]
        ),
        max_size=4,
        unique=True,
    ),
    st.tuples(small, small, small, small),
)
def test_pruning_changes_nothing_but_time(tmp_path: Path, constraints: list[str], plain: tuple[int, ...]) -> None:
    text = wide(3, 4, "true").replace("      - true\n", "".join(f"      - {c}\n" for c in constraints) or "      []\n")
    text = text.replace("    constraints:", "    derived: {E: D - P3, D: P0 + P1 + P2}\n    constraints:")
    for index, value in enumerate(plain):
        text = text.replace(f"      P{index}: 1\n", f"      P{index}: {value}\n")
    bound = bind(tmp_path, text, template=TEMPLATE.replace("FAST", "P0, P1, P2, P3"))
    expected = []
    for values in itertools.product([1, 2, 3], repeat=4):
        names = dict(zip(("P0", "P1", "P2", "P3"), values, strict=True)) | {"cols": 4096}
        names["D"] = names["P0"] + names["P1"] + names["P2"]
        names["E"] = names["D"] - names["P3"]
        if all(eval(constraint, {}, names) for constraint in constraints):
            expected.append(values)
    assert [tuple(chosen(config).values()) for config in bound.configs()] == expected
    assert bound.size() == len(expected)
    if not expected:
        assert bound.templates == ()
        return
    assert bound.combinations() - bound.size() == sum(bound.refusals().values())
    nearest = tuple(chosen(bound.plain()[0]).values())
    changed = [sum(a != b for a, b in zip(values, plain, strict=True)) for values in expected]
    assert sum(a != b for a, b in zip(nearest, plain, strict=True)) == min(changed)
    assert nearest in expected


@pytest.mark.parametrize("name", operators.names())
def test_every_shipped_space_binds_and_its_plain_configs_are_parsed_again(name: str) -> None:
    operator = operators.get(name)
    if not (shipped.search_spaces_dir() / f"{name}.yaml").is_file():
        pytest.skip(f"no search space is shipped for {name}")
    bound = load_space(name).bind(operator.example(), H200)
    assert bound.plain()
    for config in bound.plain():
        assert bound.parse(config.label) == config
        assert set(bound.launch_arguments(config)) <= set(bound.template(config).launch_parameters)
        assert not set(bound.launch_arguments(config)) & {name for name, _ in config.switches}
        assert bound.tiles(config)
        assert bound.precision(config).input == "bf16"
