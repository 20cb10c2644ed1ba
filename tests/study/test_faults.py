"""Arguments and numbers that once broke something: a typed error or a finite answer, always."""

from contextlib import suppress
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from soak import calls, files, public
from soak.hostile import Hostile

import manyarms as ma
from manyarms.errors import (
    ArmsError,
    KernelError,
    ManyArmsError,
    NumericalError,
    ObservationError,
    ParameterError,
)

X = np.linspace(0, 1, 5).reshape(-1, 1)
RBF = ma.kernels.RBF(0.3)
POINTS = [{"x": 0.1}, {"x": 0.2}, {"x": 0.3}, {"x": 0.3}]


def is_finite(answer):
    return bool(np.isfinite(list(calls.numbers_in(answer))).all())


def optimizer(**settings):
    return ma.Optimizer(ma.Pool.from_array(X), direction="maximize", **settings)


def answers(known, ids):
    return known.best(), known.top(3), known.certificate(), known.predict(ids), known.noise


class TestFiniteAnswers:
    @pytest.mark.parametrize("settings", [{}, {"noise": 0}, {"kernel": RBF}])
    @pytest.mark.parametrize("size", [1e20, 1e60, 1e100])
    def test_of_replicates_that_are_far_apart(self, settings, size):
        known = optimizer(**settings)
        known.tell([0, 1, 2, 2], [1, 2, size, -size])
        assert is_finite(answers(known, range(5)))
        assert len(known.ask(2)) == 2

    @pytest.mark.parametrize("size", [1e20, 1e60, 1e100])
    def test_of_such_replicates_in_a_box(self, size):
        known = ma.Optimizer(ma.Box(x=(0.0, 1.0)), direction="maximize")
        known.tell(POINTS, [1, 2, size, -size])
        assert is_finite(answers(known, POINTS))
        assert is_finite([list(point.values()) for point in known.ask(2)])

    def test_the_scatter_of_replicates_counts_as_noise(self):
        known = optimizer()
        known.tell([0, 1, 2, 2], [1, 2, 1e20, -1e20])
        assert known.noise > 1e19
        best = known.best().recommended
        assert best.high - best.low > 1e19

    @pytest.mark.parametrize("direction", ["maximize", "minimize"])
    @pytest.mark.parametrize("size", [1e90, 1e99, 1e-90, 1e-200, 5e-324])
    @pytest.mark.parametrize(
        "settings",
        [{}, {"kernel": RBF}, {"kernel": RBF, "noise": 1.0}, {"kernel": RBF, "noise": 0}],
    )
    def test_of_values_of_any_size(self, direction, size, settings):
        known = ma.Optimizer(ma.Pool.from_array(X), direction=direction, **settings)
        known.tell([0, 1, 2, 3], size * np.array([1, 0.2, -1, 0.5]))
        assert is_finite(answers(known, range(5)))

    @pytest.mark.parametrize("apart", [5e-324, 1e-120, 1e-101, 1e-99])
    def test_of_worse_values_that_are_hardly_apart(self, apart):
        known = optimizer()
        known.tell([0, 1, 2, 3, 4], [0, apart, 2 * apart, 1.0, 2.0])
        assert is_finite(answers(known, range(5)))

    def test_one_good_value_among_many_that_are_nearly_equal(self):
        rows = np.linspace(0, 1, 2000).reshape(-1, 1)
        values = np.ones(2000)
        values[7] += 3e-12
        known = ma.Optimizer(ma.Pool.from_array(rows), direction="maximize")
        known.tell(range(2000), values)
        assert is_finite(answers(known, range(0, 2000, 100)))

    @pytest.mark.parametrize("settings", [{}, {"kernel": RBF}, {"kernel": RBF, "noise": 0.1}])
    @pytest.mark.parametrize("noise", [1e60, 1e99, 1e-200, [1e99, 1e-99, None]])
    def test_of_values_far_below_their_noise(self, settings, noise):
        known = optimizer(**settings)
        known.tell([0, 1, 2], [1e-99, 2e-99, 3e-99], noise=noise)
        assert is_finite(answers(known, range(5)))

    def test_of_values_far_below_the_noise_that_was_given(self):
        known = optimizer(noise=1e60)
        known.tell([0, 1, 2], [1e-99, 2e-99, 3e-99])
        assert is_finite(answers(known, range(5)))

    @pytest.mark.parametrize("make", [ma.BKB, ma.GPUCB])
    def test_rewards_beyond_float64_are_refused_at_once(self, make):
        policy = make(X, RBF)
        message = r"finite and at most 1e\+100 in size, got 1e\+308 at position 1; use other units"
        with pytest.raises(ObservationError, match=message):
            policy.observe([0, 1, 2], [1.0, 1e308, -1e308])
        assert not policy.counts.any()
        policy.observe([0, 1, 2], [1e100, 1e100, -1e100])
        assert is_finite([*policy.predict(), policy.beta])

    @pytest.mark.parametrize("make", [ma.BKB, ma.GPUCB])
    @pytest.mark.parametrize("scale", [1e6, 1e12, 1e60])
    def test_large_kernels_are_not_called_indefinite(self, make, scale):
        rows = np.random.default_rng(0).normal(size=(50, 4))
        policy = make(rows, scale * ma.kernels.RBF(1.0))
        with suppress(NumericalError):  # said of float64, not of the kernel
            for _ in range(30):
                policy.observe(policy.choose(), [1.0])
        assert is_finite(policy.predict())


class TestTypedErrors:
    @pytest.mark.parametrize("noise", [[[1], [1, 2]], [[1, 2], [1, 2]], np.ones((2, 2)), {"a": 1}])
    def test_ragged_noise(self, noise):
        known = optimizer()
        with pytest.raises(ObservationError, match="noise must be"):
            known.tell([0, 1], [1, 2], noise=noise)
        assert known.history == []

    def test_failed_as_an_array_of_no_dimension(self):
        known = optimizer()
        known.tell([0, 1], failed=np.array(True))
        assert [trial.failed for trial in known.history] == [True, True]
        known.tell([2, 3], [1.0, None], failed=np.array([False, True]))
        with pytest.raises(ObservationError, match="failed must be True, or one truth"):
            known.tell([4], failed=np.array(1.0))

    @pytest.mark.parametrize("names", [5, [1], ["a", "b"], np.array(3)])
    def test_names_of_columns(self, names):
        with pytest.raises(ParameterError, match="names must be 1 different strings"):
            ma.Pool.from_array(X, names=names)

    def test_arrays_for_words(self):
        several = np.array(["a", "b"])
        rows = [{"a": 1, "b": 2}, {"a": 2, "b": 3}]
        with pytest.raises(ParameterError, match="missing must be one of"):
            ma.Pool.from_dicts(rows, missing=several)
        with pytest.raises(ParameterError, match="id must be a column"):
            ma.Pool.from_dicts(rows, id=several)

    @pytest.mark.parametrize(
        "value",
        [
            *({"x": object()}, [object()], {"x": [1, {"y": object()}]}, [[1], ["a"]], {1: 2}),
            *(
                [1, "a"],
                np.array([object(), 1]),
                [np.array([1]), object()],
                (None,),
            ),
        ],
    )
    @pytest.mark.parametrize("other", [None, 1, "a", [0, 1]])
    def test_nested_objects_in_dicts(self, value, other, capfd):
        with pytest.raises(ArmsError):
            ma.Pool.from_dicts([{"a": 1, "b": value}, {"a": 2, "b": value}, {"a": 3, "b": other}])
        assert "panicked" not in capfd.readouterr().err  # where polars does, it may end the process

    @pytest.mark.parametrize("other", [1, [0, 1]])
    def test_numbers_that_are_none(self, other):
        value = Decimal("NaN")
        with pytest.raises(ArmsError, match="'b'"):
            ma.Pool.from_dicts([{"a": 1, "b": value}, {"a": 2, "b": value}, {"a": 3, "b": other}])
        empty = ma.Pool.from_dicts([{"a": 1, "b": value}, {"a": 2, "b": value}])
        assert empty.unused == {"b": "empty"}

    def test_boxes_of_whole_numbers_beyond_float64(self):
        with pytest.raises(ParameterError, match="whole numbers, which must be at most 2⁵³"):
            ma.Box(x=(1, 10**30))
        assert ma.Box(x=(1.0, 1e30)).dimension == 1

    @pytest.mark.parametrize("n", [-2, 1.5, None])
    def test_samples_of_a_box(self, n):
        with pytest.raises(ParameterError, match="n must be a whole number from 0"):
            ma.Box(x=(0.0, 1.0)).sample(n, np.random.default_rng(0))
        with pytest.raises(ParameterError, match="rng must be a numpy Generator"):
            ma.Box(x=(0.0, 1.0)).sample(1, 7)

    @pytest.mark.parametrize("space", [X, ma.Box(x=(0.0, 1.0))])
    @pytest.mark.parametrize("options", [{"foo": 1}, {"arms": X}, {"kernel_": RBF}])
    def test_options_that_no_policy_has(self, space, options):
        with pytest.raises(ParameterError, match=r"the options must be those of \w+: "):
            ma.Optimizer(space, direction="maximize", **options)

    @pytest.mark.parametrize("part", [5, None, "rbf", ma.kernels.RBF, np.timedelta64(1)])
    def test_kernels_made_of_other_things(self, part):
        made = [
            lambda: ma.kernels.Sum(part, RBF),
            lambda: ma.kernels.Product(RBF, part),
            lambda: ma.kernels.Scaled(part, 2.0),
            lambda: ma.kernels.Unpacked(part, (8,)),
            lambda: ma.kernels.Unpacked(RBF, part),
            lambda: ma.kernels.Pairwise(part),
            lambda: ma.kernels.FromObject(part),
        ]
        for make in made:
            with pytest.raises(KernelError):
                make()

    def test_spans_of_time_are_no_numbers(self):
        second = np.timedelta64(1)
        for radius in (ma.LogDet, ma.Theory, ma.Certified):
            with pytest.raises(ParameterError, match="norm must be a positive bound"):
                radius(second, 0.1)
        for make in (ma.Constant, ma.Bayes, ma.Growing):
            with pytest.raises(ParameterError):
                make(second)
        for make in (ma.kernels.RBF, ma.kernels.Matern, ma.kernels.Linear, ma.kernels.Hamming):
            with pytest.raises(KernelError):
                make(second)
        with pytest.raises(ParameterError, match="n must be a whole number from 1 to 1,000,000"):
            ma.BKB(X, RBF).choose(second)

    def test_words_without_end(self):
        for make in (ma.kernels.Spectrum, ma.kernels.Mismatch):
            with pytest.raises(KernelError, match="words must be fewer than 2⁵²"):
                make(2 * 10**18, "ACGT")
        with pytest.raises(KernelError, match="at most 100,000 neighbours, got"):
            ma.kernels.Mismatch(26, "ACGT", mismatches=20)

    @pytest.mark.parametrize("n", [np.uint64(2**63), 10**30, pytest.param(10**5000, id="many")])
    def test_batches_without_end(self, n):
        policy = ma.BKB(X, RBF)
        known = optimizer()
        for ask in (policy.choose, lambda n: policy.choose(n, arms=X), known.ask):
            with pytest.raises(
                ParameterError, match="n must be a whole number from 1 to 1,000,000"
            ):
                ask(n)
        assert known.pending == []

    def test_seeds_of_many_digits(self):
        for make in (lambda seed: ma.BKB(X, RBF, seed=seed), lambda seed: optimizer(seed=seed)):
            make(2**128 - 1)
            with pytest.raises(ManyArmsError, match="got a number of 16,610 bits"):
                make(10**5000)

    # Found by soak.calls

    @pytest.mark.parametrize("things", [5, np.array(1.0), None, "ACGT"])
    def test_what_is_no_sequence_of_objects(self, things):
        for kernel in (ma.kernels.Spectrum(2, "ACGT"), ma.kernels.Jaccard()):
            with pytest.raises(ArmsError, match="takes a sequence of objects"):
                kernel.encode(things)
        with pytest.raises(ArmsError, match="arms must be sets"):
            ma.kernels.Jaccard().encode([np.array(1.0)])

    @pytest.mark.parametrize("other", [np.array([1.0, 2.0]), np.zeros(0), np.timedelta64(1), "inf"])
    def test_ends_of_a_growing_radius(self, other):
        with pytest.raises(ParameterError, match="most must be"):
            ma.Growing(1.0, other)

    def test_numbers_of_other_types_become_plain(self):
        third = Fraction(1, 3)
        assert type(ma.Constant(np.longdouble(2)).c) is float
        assert ma.kernels.Scaled(RBF, third)(X, X).dtype == np.float64
        assert ma.BKB(X, third * RBF, confidence=ma.Certified(third, 0.1)).beta > 0
        known = optimizer()
        known.tell([0, 1], [1.0, 2.0])
        assert known.best(np.longdouble(0.9)) == known.best(0.9)

    def test_integers_beyond_float64(self):
        large = 10**400
        with pytest.raises(ParameterError):
            ma.domains.Polytope([[large]], [1.0])
        with pytest.raises(ParameterError):
            ma.Box([[0, large]])
        with pytest.raises(KernelError, match="degree must be a whole number from 1 to 1,000"):
            ma.kernels.Polynomial(large)
        with pytest.raises(ArmsError):
            optimizer().tell(large, 1.0)
        with pytest.raises(ParameterError, match="n must be a whole number from 0 to 1,000,000"):
            ma.Box(x=(0.0, 1.0)).sample(2**63, np.random.default_rng(0))

    def test_arrays_of_no_dimension(self):
        nothing = np.array(1.0)
        policy = ma.BKB(X, RBF)
        for call in (
            lambda: policy.observe(nothing, [1.0]),
            lambda: policy.choose(pending=nothing),
            lambda: ma.Box(x=(0.0, 1.0)).decode(nothing),
            lambda: ma.Pool.from_dicts(nothing),
            lambda: ma.Pool.from_array(X, ids=nothing),
        ):
            with pytest.raises(ArmsError):
                call()

    def test_arrays_with_something_masked_within(self):
        within = [np.ma.masked_array(1, mask=True), 2]
        policy = ma.BKB(X, RBF)
        for call in (
            lambda: policy.observe(within, [1.0, 2.0]),
            lambda: policy.choose(arms=[within]),
            lambda: ma.Pool.from_array([within]),
        ):
            with pytest.raises(ArmsError):
                call()

    def test_what_is_no_radius(self):
        for other in (RBF, ma.Constant, 2.0, len):
            with pytest.raises(ParameterError, match="confidence must be a radius"):
                ma.BKB(X, RBF, confidence=other)

    def test_rows_of_objects_in_single_precision(self):
        rows = ma.kernels.Spectrum(2, "ACGT").encode(["ACG", "TT"]).astype(np.float32)
        assert len(ma.Pool.from_objects(rows, ma.kernels.Spectrum(2, "ACGT"))) == 2

    def test_horizons_beyond_float64(self):
        with pytest.raises(ParameterError, match="horizon must be a whole number from 1 to"):
            ma.oversampling_for(0.5, 0.1, 10**400)

    def test_levels_that_cannot_be_hashed(self):
        with pytest.raises(ParameterError, match="levels that can be hashed"):
            ma.Box(x=[np.timedelta64(1), [1]])
        with pytest.raises(ParameterError, match="must be \\(low, high\\)"):
            ma.Box(x=(0.0, 1.0, np.zeros(2)))

    def test_counts_without_end(self):
        with pytest.raises(ArmsError, match="counts must be whole numbers from 0 to 10,000, got"):
            ma.kernels.Jaccard().encode([{"a": 10**30}])
        with pytest.raises(ArmsError, match="counts must be whole numbers"):
            ma.kernels.Jaccard().encode([{"a": np.timedelta64(1)}])

    @pytest.mark.parametrize("edges", [["a", "b"], np.zeros((2, 0)), [b"ab"], [(0, 1.5)], [(0, 5)]])
    def test_edges_that_are_no_pairs_of_nodes(self, edges):
        with pytest.raises(ArmsError, match="edges must be pairs of nodes from 0 to 1"):
            ma.kernels.WeisfeilerLehman().encode([(["C", "O"], edges)])

    def test_levels_in_an_array_of_no_dimension(self):
        with pytest.raises(ParameterError, match="columns"):
            ma.Pool.from_dicts([{"x": 1}, {"x": 2}], columns={"x": np.array(1.0)})

    def test_repeats_beyond_float64(self):
        with pytest.raises(ParameterError, match=r"repeats .* must be a whole number from 1 to"):
            optimizer(repeats=10**400)

    def test_no_time_is_no_id(self):
        known = optimizer()
        for call in (known.tell, known.release, known.retire, known.predict):
            with pytest.raises(ArmsError):
                call(np.timedelta64("NaT"))

    @pytest.mark.parametrize("policy", [int, dict, len, 5])
    def test_what_is_no_policy(self, policy):
        with pytest.raises(ParameterError):
            optimizer(policy=policy)

    @pytest.mark.parametrize("part", ["rule", "batches", "tuning"])
    def test_parts_of_a_policy(self, part):
        for other in (np.zeros(2), None, ma.Inserted):
            with pytest.raises(ParameterError, match=f"{part} must be"):
                ma.BKB(X, RBF, **{part: other})

    def test_distances_at_the_end_of_float64(self):
        rows = np.array([[0.0], [1.0], [6e154]])
        with pytest.raises(KernelError, match="use a larger lengthscale or smaller features"):
            ma.BKB(rows, ma.kernels.Matern(5.0)).choose(2)

    def test_variances_beyond_float64(self):
        with pytest.raises(NumericalError, match=r"k\(x, x\)/λ must be at most 1e\+100"):
            ma.BKB(X, RBF, regularization=1e-310)

    def test_a_sketch_without_rows_has_no_dimension(self, capfd):
        policy = ma.baselines.DTC(0 * X, ma.kernels.Linear(), inducing=2)
        policy.observe([0], [1.0])
        assert policy.effective_dimension == 0
        assert capfd.readouterr().out == ""

    @pytest.mark.parametrize("make", [ma.BKB, ma.GPUCB])
    def test_batches_that_no_rule_ends(self, make):
        policy = make(X, 1e-60 * RBF)
        policy.observe([0], [1.0])
        assert len(policy.choose(None)) == 1000


@pytest.mark.slow
@given(st.integers(0, 2**40))
@settings(max_examples=60, deadline=None)
def test_any_argument_at_all(seed):
    made, _, faults = calls.run(1, seed)
    assert not faults
    assert made


@pytest.mark.soak
@pytest.mark.parametrize(
    ("kind", "number"),
    [
        *(("csv", 60), ("gzip", 60), ("npy", 60), ("parquet", 4)),
        *(("workbook", 8), ("table", 200), ("export", 40)),
    ],
)
def test_any_damaged_file(tmp_path, kind, number):
    assert sum(files.run(kind, number, tmp_path)[:2]) >= number


HUGE = 10**5000  # Python writes no number of more than 4,300 digits


class TestArgumentsOfAnySize:
    """Messages are made of what can be written, and of the public names none is left out."""

    @pytest.mark.parametrize(
        "value",
        [HUGE, [HUGE], {"a": HUGE}, (1, HUGE), np.array([HUGE], dtype=object), Fraction(HUGE, 3)],
        ids=["alone", "list", "dict", "tuple", "array", "fraction"],
    )
    def test_numbers_of_thousands_of_digits(self, value, path):
        known = optimizer()
        study = ma.Study.create(path, np.eye(3))
        for call in (
            lambda: ma.kernels.RBF(value),
            lambda: ma.Box(x=value),
            lambda: ma.Box(x=[value, "a"]),
            lambda: ma.Pool.from_csv(value),
            lambda: ma.Pool.from_dicts([{"a": 1}, {"a": 2}], columns=value),
            lambda: ma.Pool.from_dicts([{"a": 1}, {"a": 2}], columns={"a": value}),
            lambda: ma.Study.open(value),
            lambda: known.tell(0, value),
            lambda: known.tell(value, [1.0]),
            lambda: known.tell(0, [1.0], failed=value),
            lambda: known.ask(1, where=value),
            lambda: study.undo(value),
            lambda: study.tell(0, [1.0], token=value),
            lambda: study.tell(0, [1.0], batch=value),
        ):
            with pytest.raises(ManyArmsError) as caught:
                call()
            assert len(str(caught.value)) < 400
        assert not study.history

    @pytest.mark.parametrize(
        "arguments",
        [
            (5,),
            (None, 5),
            (None, None, 5),
            ({"x": 1},),
            ({5: 1},),
            ({"ids": 0},),
            (None, None, [5]),
            (None, None, [(5, "note")]),
        ],
    )
    def test_revise(self, path, arguments):
        study = ma.Study.create(path, np.eye(3))
        with pytest.raises(ManyArmsError):
            study.revise(*arguments)
        assert study.n_events == 1

    def test_shards(self):
        for call in (
            lambda: ma.cluster.OnShards(None),
            lambda: ma.cluster.OnShards(2, folder="x"),
            lambda: ma.cluster.Sharded("x" * 10**6, in_process=True),
        ):
            with pytest.raises(ManyArmsError):
                call()

    def test_what_pandas_and_decimals_have_for_nothing(self, path):
        pandas = pytest.importorskip("pandas")
        study = ma.Study.create(path, np.eye(3))
        for note in (pandas.NA, [pandas.NA], pandas.NaT):
            with pytest.raises(ManyArmsError):
                study.tell(0, [1.0], note=note)
        with pytest.raises(ManyArmsError):
            study.tell(0, [Decimal("sNaN")])
        with pytest.raises(ManyArmsError):
            ma.Pool.from_dicts([{"x": Decimal("sNaN")}, {"x": 1}])
        assert study.n_events == 1

    def test_levels_that_are_objects(self):
        for levels in (object(), [object()], [{}, 1], [HUGE, object()], HUGE):
            for argument in (levels, {"a": levels}):
                with pytest.raises(ManyArmsError):
                    ma.Pool.from_levels(argument)

    def test_conditions_that_are_no_text(self):
        pool = ma.Pool.from_dicts([{"c": "a"}, {"c": "b"}])
        for condition in ("c == '\ud800'", "\ud800 == 'a'", "c == 'a\0'", "  "):
            with pytest.raises(ManyArmsError) as caught:
                pool.where(condition)
            str(caught.value).encode()

    def test_objects_whose_name_cannot_be_written(self):
        class Rude:
            def __repr__(self):
                raise RuntimeError("no")

        with pytest.raises(ManyArmsError, match="a Rude that cannot be written"):
            ma.kernels.RBF(Rude())


def test_nothing_public_is_left_out_of_the_fuzz(folder, monkeypatch):
    """Every public name is called, or an attribute of one that is; and what has methods can be made to call them."""
    monkeypatch.chdir(folder)
    called = {*public.OWNERS, *public.NOT_CALLED}
    left = {each for each in public.NAMES if not {each, each.rpartition(".")[0]} & called}
    assert {each for each in left if not each.startswith("errors.")} == {"FAILED"}
    for name in public.OWNERS:
        if any(each.startswith(f"{name}.") for each in public.NAMES):
            public.instance(Hostile(0), name)
