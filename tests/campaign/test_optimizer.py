"""Ask and tell: what is remembered, what is avoided, units, promises, and what bad input leaves behind."""

import copy
from functools import cache

import numpy as np
import polars as pl
import pytest
from scipy import optimize
from scipy.stats import norm

import manyarms as ma
from manyarms.campaign.fitting import Fit, fitted
from manyarms.errors import (
    ArmsError,
    KernelError,
    ManyArmsError,
    ObservationError,
    ParameterError,
    StateError,
    UnknownArmError,
)

X = np.random.default_rng(0).random((60, 2))
F = np.sin(5 * X[:, 0]) + X[:, 1]
NOISE = 0.05 * np.random.default_rng(1).standard_normal(500)
KERNEL = ma.kernels.RBF(0.3)
ALL = np.arange(60)


def optimizer(pool=X, **options):
    return ma.Optimizer(pool, **options)


def told(n=20, values=F, **options):
    """After results of the first n candidates."""
    found = optimizer(**options)
    found.tell(ALL[:n], values[:n] + NOISE[:n])
    return found


def run(found, steps, value=lambda y: y, f=F):
    """The ids asked in `steps` rounds."""
    asked = []
    for step in range(steps):
        (name,) = found.ask()
        asked.append(name)
        found.tell(name, value(f[name] + NOISE[step]))
    return asked


def snapshot(found):
    """All that a user can see."""
    predicted = found.predict(found.pool.ids)
    try:
        asked = copy.copy(found).ask(3)
    except StateError:
        asked = []
    arrays = [array.tobytes() for array in predicted[1:]]
    return (
        found.history,
        found.pending,
        asked,
        arrays,
        found.size if found.history else None,
        found.pool.ids.tolist(),
        repr(found),
        found.noise,
    )


# Values that are exact


class TestExactValues:
    def test_repeats_that_agree_say_so(self):
        found = told(20, values=F, noise=None)
        exact = optimizer()
        exact.tell(np.arange(20), F[:20])
        assert exact.best().measured.id == int(np.argmax(F[:20]))
        exact.tell([3, 4, 5], F[3:6])
        best = exact.best()
        assert best.recommended == best.measured
        assert best.recommended.low == best.recommended.high == F[:20].max()
        assert "gave the same value" in best.why
        exact.tell(3, F[3] + 0.1)
        assert "gave the same value" not in exact.best().why
        assert "gave the same value" not in found.best().why

    def test_zeros_and_ones_agree_by_chance(self):
        found = optimizer()
        found.tell(np.arange(20), (F[:20] > 1).astype(float))
        found.tell([0, 1, 2, 3], (F[:4] > 1).astype(float))
        assert "exact" not in found.best().why

    def test_before_that_the_best_one_measured_is_recommended_unless_one_came_out_otherwise(self):
        found = optimizer(np.linspace(0, 1, 120)[:, None])
        values = np.random.default_rng(0).standard_normal(120)  # the model takes them for noise
        top = int(np.argmax(values[:64]))
        found.tell(np.arange(64), values[:64])
        best = found.best()
        assert best.recommended == best.measured
        assert best.measured.id == top
        assert "no result says yet that values have noise" in best.why
        again = top - 1 if top else 1
        otherwise = copy.copy(found)
        otherwise.tell(again, values[again] + 1e-3)
        assert "no result says yet" not in otherwise.best().why
        found.tell(again, values[again])
        found.tell(np.arange(64, 120), values[64:])
        assert found.best().recommended.id == int(np.argmax(values))

    def test_of_many_results_none_of_which_came_again_the_model_recommends(self):
        found = optimizer(np.linspace(0, 1, 120)[:, None])
        found.tell(np.arange(65), np.random.default_rng(0).standard_normal(65))
        assert "no result says yet" not in found.best().why
        box = ma.Optimizer(ma.Box([[0, 1]]))
        box.tell([(0.1,), (0.5,), (0.9,)], [1.0, 2.0, 1.5])
        assert "no result says yet" not in box.best().why
        noisy = optimizer(np.linspace(0, 1, 120)[:, None], noise=1.0)
        noisy.tell(np.arange(20), np.random.default_rng(0).standard_normal(20))
        assert "no result says yet" not in noisy.best().why


# Asking


class TestAsking:
    def test_a_share_of_suggestions_is_of_candidates_never_tried(self):
        """About 3·n^(2/3) of n; with a radius that was given there is no such share."""
        found = ma.Optimizer(X, seed=0)
        asked = run(found, 40)
        fresh = [name not in asked[:i] for i, name in enumerate(asked)]
        due = [int(3 * (n + 1) ** (2 / 3)) > int(3 * n ** (2 / 3)) for n in range(40)]
        assert all(is_new for is_new, is_due in zip(fresh, due, strict=True) if is_due)
        assert 30 <= sum(due) < 40
        settled = ma.Optimizer(X, seed=0, confidence=ma.Constant(0.1))
        assert len(set(run(settled, 40))) < 20

    def test_in_a_batch_too_and_no_longer_where_all_were_tried(self):
        found = told(30)
        assert len(set(found.ask(10))) == 10
        everything = told(60)
        assert len(everything.ask(3)) == 3

    def test_a_batch_of_an_unexplored_pool_holds_different_candidates(self):
        for n in (1, 5, 8):
            asked = optimizer().ask(n)
            assert len(set(asked)) == n
            assert all(type(name) is int for name in asked)

    @pytest.mark.parametrize("n", [12, 20])
    def test_so_does_a_larger_one(self, n):
        assert len(set(optimizer().ask(n))) == n

    def test_a_whole_pool_can_be_one_batch(self):
        assert sorted(optimizer(X[:20], repeats="never").ask(20)) == list(range(20))
        assert sorted(optimizer(X[:20], repeats="never").ask(99)) == list(range(20)), (
            "as many as there are"
        )

    @pytest.mark.parametrize(
        ("n", "repeats"), [(0, "allow"), (0, "never"), (12, "never"), (30, 1), (12, "allow")]
    )
    def test_asking_again_gives_others(self, n, repeats):
        found = told(n, repeats=repeats) if n else optimizer(repeats=repeats)
        first, second = found.ask(3), found.ask(3)
        assert not set(first) & set(second)
        assert found.pending == first + second

    def test_a_batch_is_the_same_as_asking_one_by_one(self):
        one, batch = told(20), told(20)
        assert batch.ask(6) == [one.ask()[0] for _ in range(6)]

    def test_results_come_out_of_order_and_in_part(self):
        found = optimizer()
        asked = found.ask(5)
        found.tell([asked[3], asked[0]], [0.3, 0.1])
        assert found.pending == [asked[1], asked[2], asked[4]]
        assert not set(found.ask(2)) & set(asked)
        found.tell(asked[2], 0.2)
        assert [(t.number, t.id, t.value, t.failed) for t in found.history] == [
            (0, asked[3], 0.3, False),
            (1, asked[0], 0.1, False),
            (2, asked[2], 0.2, False),
        ]
        assert asked[2] not in found.pending

    def test_the_order_of_results_does_not_matter_to_predictions(self):
        one, other = (optimizer(policy=ma.GPUCB) for _ in range(2))
        ids = ALL[:24]
        one.tell(ids, F[ids])
        other.tell(ids[::-1], F[ids[::-1]])
        np.testing.assert_allclose(one.predict(ALL).mean, other.predict(ALL).mean, atol=1e-3)

    def test_released_candidates_are_asked_again(self):
        found = optimizer()
        first = found.ask(4)
        found.release(first[1:3])
        assert found.pending == [first[0], first[3]]
        assert found.ask(2) == first[1:3]
        found.release(first[0])
        found.release([])
        assert first[0] not in found.pending

    def test_told_results_of_one_pending_twice_settle_one(self):
        found = ma.Optimizer(X[:1])
        assert found.ask(3) == [0, 0, 0]
        found.tell(0, 1.0)
        assert found.pending == [0, 0]
        found.tell([0, 0], [1.0, 1.1])
        assert found.pending == []

    def test_nothing_left_is_an_error_that_says_so(self):
        found = ma.Optimizer(X[:3], repeats="never")
        found.retire(2)
        asked = found.ask(9)
        assert sorted(asked) == [0, 1]
        for n in (2, 1):
            with pytest.raises(
                StateError,
                match=f"nothing is left.*3 candidates 1 are retired, 0 failed, {n} are pending",
            ):
                found.ask()
            found.tell(asked.pop(), 1.0)
        with pytest.raises(StateError, match="nothing is left"):
            found.ask()
        found.add(X[10:12])
        assert sorted(found.ask(5)) == [3, 4]

    @pytest.mark.parametrize(("repeats", "most"), [("never", 1), (1, 1), (2, 2), (3, 3)])
    def test_repeats(self, repeats, most):
        found = ma.Optimizer(X[:4], repeats=repeats)
        asked = [run(found, 1)[0] for _ in range(4 * most)]
        assert sorted(asked) == sorted(list(range(4)) * most)
        with pytest.raises(StateError):
            found.ask()
        pending = ma.Optimizer(X[:4], repeats=repeats).ask(99)
        assert sorted(pending) == sorted(list(range(4)) * most)

    def test_repeats_are_asked_for_where_allowed(self):
        found = ma.Optimizer(X[:4])
        assert len(run(found, 20)) == 20
        assert max(candidate.n_results for candidate in found.top(4)) > 1

    def test_a_table_of_results_replaces_the_random_start(self):
        found, start = told(40), optimizer().ask(8)
        assert found.pending == []
        assert found.ask()[0] not in start or found.ask(4) != start[:4]
        assert F[told(40, repeats="never").ask(3)].mean() > np.median(F)

    def test_the_better_candidates_are_asked_for(self):
        found = told(15)
        assert np.median(F[run(found, 20)]) > np.quantile(F, 0.8)


class TestSeeds:
    @pytest.mark.slow
    def test_same_seed_same_asks(self):
        assert run(optimizer(seed=4), 25) == run(optimizer(seed=4), 25)
        assert run(optimizer(seed=np.random.default_rng(4)), 12) == run(
            optimizer(seed=np.random.default_rng(4)), 12
        )
        assert run(optimizer(seed=np.int64(4)), 12) == run(optimizer(seed=4), 12)

    @pytest.mark.slow
    def test_other_seeds_differ(self):
        asks = {tuple(optimizer(seed=seed).ask(5)) for seed in range(20)}
        asks |= {tuple(optimizer(seed=np.random.default_rng(seed)).ask(5)) for seed in range(20)}
        assert len(asks) == 40
        rng = np.random.default_rng(0)
        assert optimizer(seed=rng).ask(5) != optimizer(seed=rng).ask(5)


# Telling


class TestFailures:
    def test_every_way_to_say_so(self):
        for tell in (
            lambda found: found.tell(7, failed=True),
            lambda found: found.tell(7, ma.FAILED),
            lambda found: found.tell([7], [ma.FAILED]),
            lambda found: found.tell([7], failed=[True]),
            lambda found: found.tell([7], [np.nan], failed=np.array([True])),
            lambda found: found.tell([7], np.array([ma.FAILED], dtype=object)),
        ):
            found = optimizer()
            tell(found)
            assert [(t.id, t.value, t.failed) for t in found.history] == [(7, None, True)]
        assert repr(ma.FAILED) == "FAILED"

    def test_some_of_several(self):
        found = optimizer()
        found.tell([1, 2, 3], [0.5, ma.FAILED, 0.7])
        found.tell([4, 5], [np.nan, 0.8], failed=[True, False])
        assert [t.value for t in found.history] == [0.5, None, 0.7, None, 0.8]
        assert [found.history[i].id for i in (1, 3)] == [2, 4]

    def test_they_teach_the_model_nothing(self):
        found, clean = optimizer(), optimizer()
        for step in range(12):
            found.tell(59 - step, failed=True)
            for each in (found, clean):
                each.tell(step, F[step])
            for a, b in zip(found.predict(ALL)[1:], clean.predict(ALL)[1:], strict=True):
                np.testing.assert_array_equal(a, b)
        assert found.best() == clean.best()
        assert found.certificate().n_results == 12
        assert clean.ask(20)
        assert not set(found.ask(20)) & set(range(48, 60))

    @pytest.mark.parametrize("repeats", ["allow", "never", 2])
    def test_they_are_not_asked_for_nor_recommended(self, repeats):
        found = ma.Optimizer(X[:12], repeats=repeats)
        bad = {2, 5, 7, 8}
        for _ in range(16 if repeats == "allow" else 8):
            (name,) = found.ask()
            found.tell(name, ma.FAILED if name in bad else F[name])
        failed = [t.id for t in found.history if t.failed]
        assert len(failed) == len(set(failed))
        assert not set(failed) & {c.id for c in found.top(12)}
        assert found.best().recommended.id not in bad
        assert found.certificate().rival not in failed

    def test_all_may_fail(self):
        found = ma.Optimizer(X[:5])
        for _ in range(5):
            found.tell(found.ask(), failed=True)
        with pytest.raises(StateError, match="5 failed"):
            found.ask()
        for call in (found.best, found.top, found.certificate, lambda: found.predict([0])):
            with pytest.raises(StateError, match="no value was told"):
                call()

    def test_a_candidate_that_fails_later_is_not_recommended(self):
        found = told(20)
        best = found.best().recommended.id
        found.tell(best, failed=True)
        assert found.best().recommended.id != best
        assert best not in [c.id for c in found.top(60)]

    def test_what_is_like_a_failed_one_is_left_alone(self):
        """A corner of the table that fails, and would be the best one: few trials go there."""
        rows = np.random.default_rng(3).random((400, 2))
        corner = (rows > 0.6).all(axis=1)
        assert 40 < corner.sum() < 90
        found = ma.Optimizer(rows, seed=1)
        for _ in range(60):
            (name,) = found.ask()
            found.tell(name, ma.FAILED if corner[name] else float(rows[name].sum()))
        assert sum(trial.failed for trial in found.history) <= 12

    def test_nothing_is_made_of_them_where_kernel_and_noise_are_given(self):
        settings = {"kernel": KERNEL, "noise": 0.1, "confidence": ma.Certified(2.0, 0.1, 0.1)}
        with_failures = told(8, **settings)
        with_failures.tell([40, 41, 42], failed=True)
        bandit = ma.BKB(
            with_failures.pool.X,
            KERNEL,
            regularization=0.01,
            confidence=ma.Certified(2.0, 0.1, 0.1),
        )
        bandit.observe(ALL[:8], F[:8] + NOISE[:8])
        assert with_failures.ask() == bandit.choose(exclude=[40, 41, 42]).tolist()
        assert with_failures.certificate().probability == 0.9

    def test_a_flag_for_one_candidate(self):
        found = optimizer()
        found.tell(3, 1.5, failed=False)
        found.tell(4, np.nan, failed=True)
        assert [t.value for t in found.history] == [1.5, None]


class TestReplicates:
    def test_they_are_results_of_one_candidate(self):
        found, once = told(20), told(20)
        found.tell([30, 30, 30], [1.0, 1.2, 1.1])
        once.tell(30, 1.1)
        assert [t.id for t in found.history[20:]] == [30, 30, 30]
        assert {c.id: c.n_results for c in found.top(60)}[30] == 3
        assert found.predict(30).std[0] < once.predict(30).std[0]

    def test_never_means_one_value(self):
        found = told(20, repeats="never")
        before = snapshot(found)
        for ids, values in ((3, 1.0), ([30, 30], [1.0, 2.0]), ([31, 3], [1.0, 1.0])):
            with pytest.raises(ObservationError, match=r"has a value already.*never"):
                found.tell(ids, values)
            assert snapshot(found) == before
        found.tell(30, 1.0)

    def test_never_allows_what_failed_once(self):
        found = optimizer(repeats="never")
        found.tell(3, failed=True)
        found.tell(3, 1.0)
        assert [t.value for t in found.history] == [None, 1.0]


class TestDuplicates:
    names = tuple(f"{row}{number}" for row in "abcdefgh" for number in range(3))

    def pool(self):
        return ma.Pool.from_array(np.repeat(X[:8], 3, axis=0), ids=self.names)

    def test_they_share_evidence_and_keep_their_ids(self):
        found = optimizer(self.pool())
        found.tell(["a0", "b1", "c2", "d0", "e1", "a2"], [3.0, 1.0, 0.5, 0.2, 0.1, 3.1])
        for row in "abh":
            same = found.predict([f"{row}{copy}" for copy in range(3)])
            assert np.ptp(same.mean) == np.ptp(same.std) == 0
        assert found.best().recommended.id in ("a0", "a2")
        assert found.best().recommended.n_results == 1
        assert {c.id: c.n_results for c in found.top(24)}["a1"] == 0

    def test_each_once(self):
        found = optimizer(self.pool(), repeats="never")
        asked = []
        for step in range(24):
            asked += found.ask()
            found.tell(asked[-1], float(step % 5))
        assert sorted(asked) == sorted(self.names)
        with pytest.raises(StateError):
            found.ask()

    def test_a_retired_one_leaves_the_others(self):
        found = optimizer(self.pool())
        found.tell(["a0", "b1", "c2", "d0", "e1"], [9.0, 1.0, 0.5, 0.2, 0.1])
        found.retire(["a0", "a1"])
        assert [c.id for c in found.top(24) if c.id[0] == "a"] == ["a2"]
        assert found.certificate().rival not in ("a0", "a1")
        assert not {"a0", "a1"} & set(found.ask(20))


# Units


class TestDirection:
    def test_minimising_is_maximising_the_negative(self):
        high, low = optimizer(), optimizer(direction="minimize")
        assert run(high, 30) == run(low, 30, lambda y: -y)
        up, down = high.predict(ALL, 0.9), low.predict(ALL, 0.9)
        np.testing.assert_array_equal(up.mean, -down.mean)
        np.testing.assert_array_equal(up.low, -down.high)
        np.testing.assert_array_equal(up.high, -down.low)
        np.testing.assert_array_equal(up.std, down.std)
        assert [t.value for t in low.history] == [-t.value for t in high.history]
        best, least = high.best().recommended, low.best().recommended
        assert (best.id, best.mean, best.low, best.high) == (
            least.id,
            -least.mean,
            -least.high,
            -least.low,
        )
        assert [c.id for c in high.top(9)] == [c.id for c in low.top(9)]
        one, other = high.certificate(0.1), low.certificate(0.1)
        assert (one.id, one.rival, one.regret_bound) == (other.id, other.rival, other.regret_bound)
        assert (one.estimate, one.low, one.high) == (-other.estimate, -other.high, -other.low)
        assert high.noise == low.noise

    def test_the_least_is_found(self):
        found = told(30, direction="minimize")
        assert F[found.best().recommended.id] < np.quantile(F[:30], 0.1)
        assert np.median(F[run(found, 10)]) < np.quantile(F, 0.2)


class TestAffine:
    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("a", "b"), [(2.0, 0.0), (1e-3, 5.0), (1e6, -3e6), (1e-12, 0.0), (1e12, 1e13)]
    )
    def test_the_units_of_the_values_do_not_matter(self, a, b):
        plain, scaled = optimizer(repeats=2), optimizer(repeats=2)
        assert run(plain, 50) == run(scaled, 50, lambda y: a * y + b)
        one, other = plain.predict(ALL), scaled.predict(ALL)
        for x, y in ((one.mean, other.mean), (one.low, other.low), (one.high, other.high)):
            np.testing.assert_allclose(y, a * x + b, rtol=1e-6, atol=1e-4 * a)
        np.testing.assert_allclose(other.std, a * one.std, rtol=1e-3, atol=1e-5 * a)
        assert scaled.noise == pytest.approx(a * plain.noise, rel=1e-3)
        assert scaled.certificate().regret_bound == pytest.approx(
            a * plain.certificate().regret_bound, rel=1e-3
        )
        assert scaled.certificate().record.n == plain.certificate().record.n

    @pytest.mark.parametrize("n", [1, 2, 3])
    def test_nor_while_few_results_are_in(self, n):
        asks = set()
        for a, b in ((1.0, 0.0), (1.0, 100.0), (1.0, -100.0), (1e-2, 0.0), (1e3, 1.0)):
            found = optimizer()
            asked = found.ask(8)
            found.tell(asked[:n], a * F[asked[:n]] + b)
            asks.add(tuple(found.ask(2)))
        assert len(asks) == 1

    def test_nor_in_a_small_pool(self):
        assert run(ma.Optimizer(X[:3]), 12) == run(ma.Optimizer(X[:3]), 12, lambda y: y + 100.0)


class TestRawUnits:
    def test_a_kernel_and_a_noise_are_taken_as_given(self):
        found = optimizer(kernel=KERNEL, noise=0.1, policy=ma.GPUCB)
        exact = ma.GPUCB(found.pool.X, KERNEL, regularization=0.1**2)
        for start in (0, 10, 20):
            ids = ALL[start : start + 10]
            found.tell(ids, 30 * F[ids] - 7)
            exact.observe(found.pool.arm_of[ids], 30 * F[ids] - 7)
            mean, std = exact.predict()
            predicted = found.predict(ALL, 0.95)
            np.testing.assert_allclose(predicted.mean, mean, atol=1e-9)
            np.testing.assert_allclose(predicted.std, std, atol=1e-9)
            np.testing.assert_allclose(predicted.low, mean - norm.ppf(0.975) * std, atol=1e-9)
        assert found.noise == pytest.approx(0.1)
        assert found.best().recommended.id == exact.best
        assert found.ask() == exact.choose().tolist()
        with pytest.raises(StateError, match="no lengthscales"):
            found.importance  # noqa: B018

    def test_bkb_with_all_that_was_tried_is_the_same(self):
        options = {"rule": ma.Inserted(0.0)}
        found = optimizer(kernel=KERNEL, noise=0.1, **options)
        bkb = ma.BKB(found.pool.X, KERNEL, regularization=0.1**2, **options)
        exact = ma.GPUCB(found.pool.X, KERNEL, regularization=0.1**2)
        found.tell(ALL[:25], F[:25])
        for policy in (bkb, exact):
            policy.observe(ALL[:25], F[:25])
            np.testing.assert_allclose(found.predict(ALL).mean, policy.predict().mean, atol=1e-8)
            np.testing.assert_allclose(found.predict(ALL).std, policy.predict().std, atol=1e-7)
            assert found.ask() == policy.choose().tolist()
            found.release(found.pending)
        assert isinstance(found.policy, ma.BKB)
        assert found.policy.rule == ma.Inserted(0.0)

    def test_a_noise_alone_is_in_the_units_of_the_values(self):
        found = told(30, values=100 * F, noise=5.0)
        assert found.noise == pytest.approx(5.0)


class TestKernels:
    @pytest.mark.parametrize(
        "kernel",
        [
            "linear",
            KERNEL,
            lambda A, B: np.exp(-np.abs(A[:, None] - B[None]).sum(2)),
            ma.kernels.Matern(0.5),
        ],
    )
    def test_those_that_are_given_have_their_scale_learned(self, kernel):
        found = told(20, values=1000 + 50 * F, kernel=kernel)
        assert np.corrcoef(found.predict(ALL[20:]).mean, F[20:])[0, 1] > 0.3
        assert set(found.ask(4)) <= set(range(60))
        assert found.certificate().probability is None

    @pytest.mark.parametrize(
        "kernel",
        ["tanimoto", "linear", "matern", ma.kernels.Tanimoto(), ma.kernels.RBF(3.0)],
        ids=repr,
    )
    def test_kernels_on_bits(self, kernel):
        rng = np.random.default_rng(3)
        bits = (rng.random((50, 24)) < 0.3).astype(int)
        rows = [{"print": "".join(map(str, row)), "name": f"m{i}"} for i, row in enumerate(bits)]
        weights, found = (
            rng.standard_normal(24),
            ma.Optimizer(ma.Pool.from_dicts(rows, id="name"), kernel=kernel),
        )
        for _ in range(15):
            (name,) = found.ask()
            found.tell(name, float(bits[int(name[1:])] @ weights))
        assert len({t.id for t in found.history}) > 5
        if kernel not in ("tanimoto", "matern"):  # which work on packed bits
            seen = ma.kernels.as_kernel(ma.kernels.Linear(1.0) if kernel == "linear" else kernel)
            np.testing.assert_allclose(
                found.policy.kernel.kernel(found.pool.X, found.pool.X), seen(bits, bits), atol=1e-12
            )

    def test_what_matters_is_found(self):
        rng = np.random.default_rng(2)
        pool = rng.random((80, 3))
        found = ma.Optimizer(ma.Pool.from_array(pool, names=["idle", "busy", "calm"]))
        found.tell(np.arange(60), np.sin(8 * pool[:60, 1]))
        assert next(iter(found.importance)) == "busy"
        assert set(found.importance) == {"idle", "busy", "calm"}

    def test_a_mixed_table(self):
        rng = np.random.default_rng(5)
        rows = [
            {
                "name": f"r{i}",
                "metal": "AuAgCu"[2 * (i % 3) : 2 * (i % 3) + 2],
                "heat": float(rng.random()),
                "dry": bool(i % 2),
                "lab": "x",
            }
            for i in range(60)
        ]
        value = {row["name"]: row["heat"] + 2 * (row["metal"] == "Ag") - row["dry"] for row in rows}
        for table in (rows, pl.DataFrame(rows)):
            found = ma.Optimizer(
                ma.Pool.from_dicts(rows, id="name")
                if table is rows
                else ma.Pool.from_frame(table, id="name")
            )
            for _ in range(25):
                (name,) = found.ask()
                found.tell(name, value[name])
            assert value[found.best().recommended.id] >= sorted(value.values())[-4]
        assert set(ma.Optimizer(pl.DataFrame(rows).drop("name")).ask(3)) <= set(range(60))


# What is known


class TestKnowledge:
    def test_intervals(self):
        found = told(20)
        narrow, wide = found.predict(ALL, 0.5), found.predict(ALL, 0.99)
        assert narrow.ids == list(range(60))
        assert (wide.low < narrow.low).all()
        assert (narrow.low < narrow.mean).all()
        assert (narrow.mean < narrow.high).all()
        assert (narrow.high < wide.high).all()
        assert (narrow.std > 0).all()
        assert narrow.std[:20].mean() < narrow.std[20:].mean()
        np.testing.assert_allclose(
            found.predict([5, 3, 5]).mean, found.predict(ALL).mean[[5, 3, 5]], rtol=1e-12
        )
        assert found.predict(5).ids == [5]

    def test_nine_of_ten_intervals_hold(self):
        inside = []
        for seed in range(4):
            ids = np.random.default_rng(seed).permutation(60)
            found = optimizer()
            found.tell(ids[:30], F[ids[:30]] + NOISE[:30])
            predicted = found.predict(ids[30:], 0.9)
            inside.append(((predicted.low <= F[ids[30:]]) & (F[ids[30:]] <= predicted.high)).mean())
        assert np.mean(inside) > 0.75

    def test_best_has_been_tried_and_top_may_not_have(self):
        found = told(20, confidence=ma.Constant(2.0))
        best, top = found.best(0.8).recommended, found.top(5, 0.8)
        assert best.id < 20
        assert best.n_results == 1
        assert best.low < best.mean < best.high
        at_two = found.predict(ALL[:20], 2 * norm.cdf(2) - 1)
        assert best.id == int(np.argmax(at_two.low))
        mean = found.predict(ALL).mean
        assert [c.id for c in top] == np.argsort(-mean, kind="stable")[:5].tolist()
        predicted = found.predict([c.id for c in top], 0.8)
        np.testing.assert_allclose([c.low for c in top], predicted.low)
        np.testing.assert_allclose([c.high for c in top], predicted.high)
        assert [c.n_results for c in top] == [int(c.id < 20) for c in top]
        assert len(found.top(1000)) == 60

    def test_history_grows(self):
        found = optimizer()
        run(found, 12)
        assert [t.number for t in found.history] == list(range(12))
        assert found.size.n_results == 12
        assert "12 results, 0 pending" in repr(found)
        found.history.clear()
        found.pending.append(3)
        assert len(found.history) == 12
        assert found.pending == []

    def test_before_any_result(self):
        found = optimizer()
        for call in (found.best, found.top, found.certificate, lambda: found.predict(ALL)):
            with pytest.raises(StateError, match=r"tell\(\) first"):
                call()
        with pytest.raises(StateError):
            found.importance  # noqa: B018
        assert found.history == found.pending == []
        assert np.ptp(optimizer(kernel=KERNEL, noise=0.1).predict(ALL).mean) == 0


class TestCertificate:
    @pytest.mark.parametrize("direction", ["maximize", "minimize"])
    @pytest.mark.parametrize(
        "options",
        [
            {},
            {"policy": ma.GPUCB},
            {"kernel": KERNEL},
            {"kernel": KERNEL, "confidence": ma.Certified(2.0, 0.05)},
        ],
        ids=["", "exact", "fixed", "proved"],
    )
    def test_the_bound_is_what_it_says(self, direction, options):
        found = optimizer(direction=direction, noise=0.05, repeats=1, **options)
        run(found, 30)
        found.retire([2, 40, found.top(1)[0].id])
        certificate, live = (
            found.certificate(),
            [i for i in range(60) if i not in found._state.ledger.outcomes.retired.nonzero()[0]],
        )
        width = certificate.record.width(len(live) - 1)
        if certificate.probability is None:
            assert certificate.level == 0.9
        else:
            width = found._state.model.radius
        model = found._state.model
        mean, least, most = model.in_values(*model.predict(np.array(live)), width)
        at = live.index(certificate.id)
        highest = np.delete(most, at).max()
        assert certificate.id == found.best().recommended.id
        assert certificate.regret_bound == pytest.approx(max(0.0, highest - least[at]), rel=1e-6)
        assert most[live.index(certificate.rival)] == pytest.approx(highest)
        sign = 1 if direction == "maximize" else -1
        expected = sorted([sign * least[at], sign * most[at]])
        assert [certificate.low, certificate.high] == pytest.approx(expected)
        assert certificate.estimate == pytest.approx(sign * mean[at])
        assert certificate.n_results == 30

    @pytest.mark.parametrize(
        "name", ["Uniform", "EpsilonGreedy", "GPEI", "GPPI", "SketchEI", "Thompson", "SupKernelUCB"]
    )
    def test_the_rival_has_the_largest_upper_bound_however_the_policy_chooses(self, name):
        options = {"kernel": KERNEL, "noise": 0.05, "repeats": 1}
        found = optimizer(policy=getattr(ma.baselines, name), **options)
        run(found, 25)
        certificate = found.certificate()
        predicted = found.predict(ALL, 2 * norm.cdf(certificate.record.width(59)) - 1)
        others = np.where(ALL == certificate.id, -np.inf, predicted.high)
        assert others[certificate.rival] == pytest.approx(others.max(), rel=1e-9)
        assert certificate.regret_bound == pytest.approx(
            max(0.0, others.max() - predicted.low[certificate.id]), rel=1e-9
        )

    @pytest.mark.slow
    @pytest.mark.parametrize("policy", [ma.BKB, ma.GPUCB], ids=lambda p: p.__name__)
    def test_noise_that_is_told_counts_for_what_it_is(self, policy):
        """f is inside for all candidates and steps, in 19 of 20 runs of which nine tenths must be."""
        rng, inside = np.random.default_rng(0), 0
        gram = KERNEL(X, X) + 1e-10 * np.eye(60)
        for _ in range(20):
            f = np.linalg.cholesky(gram) @ rng.standard_normal(60)
            size = float(np.sqrt(f @ np.linalg.solve(gram, f)))
            found = optimizer(
                policy=policy, kernel=KERNEL, noise=0.05, confidence=ma.Certified(size, 0.05)
            )
            holds = True
            for _ in range(15):
                ids = rng.integers(60, size=4)
                sd = rng.choice([0.01, 0.05, 0.5, 2.0], 4)
                found.tell(ids, f[ids] + sd * rng.standard_normal(4), noise=sd)
                model = found._state.model
                _, low, high = model.in_values(*model.predict(found.pool.arm_of), model.radius)
                holds &= bool((low <= f).all() and (f <= high).all())
            inside += holds
            assert found.certificate().probability == pytest.approx(0.9)
        assert inside >= 19

    @pytest.mark.slow
    @pytest.mark.parametrize(
        "options", [{}, {"kernel": ma.kernels.RBF(0.3), "noise": 0.3}], ids=["learned", "given"]
    )
    def test_after_ten_thousand_results_at_once(self, path, options):
        rng = np.random.default_rng(0)
        rows = rng.random((300, 2))
        ids = rng.integers(300, size=10_050)
        values = np.sin(5 * rows[ids]).sum(axis=1) + 0.3 * rng.standard_normal(10_050)
        found = ma.Optimizer(rows, **options)
        found.tell(ids, values)
        certificate = found.certificate()
        assert certificate.n_results == 10_050
        assert certificate.regret_bound is None  # nothing was asked for, so nothing was predicted
        with ma.Study.create(path, rows, **options) as study:
            study.tell(ids, values)
            assert study.certificate() == certificate
            study.tell(study.ask(), [0.0])
        with ma.Study.open(path) as again:
            assert again.certificate().n_results == 10_051

    @pytest.mark.parametrize(
        ("options", "probability"),
        [
            ({}, None),
            ({"noise": 0.1}, None),
            ({"kernel": KERNEL}, None),
            ({"kernel": "linear", "noise": 0.1, "confidence": ma.Bayes(0.1)}, None),
            ({"noise": 0.1, "confidence": ma.Theory(2.0, 0.1)}, None),
            ({"kernel": KERNEL, "confidence": ma.LogDet(2.0, 0.1)}, None),
            ({"kernel": KERNEL, "noise": 0.1}, None),
            ({"kernel": KERNEL, "noise": 0.1, "confidence": lambda evidence: 0.3}, None),
            (
                {"kernel": KERNEL, "noise": 0.1, "confidence": ma.LogDet(2.0, 0.1, double=True)},
                None,
            ),
            ({"kernel": KERNEL, "noise": 0.1, "confidence": ma.Theory(2.0, 0.1, delta=0.2)}, 0.8),
            ({"kernel": KERNEL, "noise": 0.1, "confidence": ma.LogDet(2.0, 0.1, delta=0.2)}, 0.8),
            (
                {"kernel": KERNEL, "noise": 0.1, "confidence": ma.Certified(2.0, 0.1, delta=0.2)},
                0.8,
            ),
            (
                {"kernel": KERNEL, "noise": 0.1, "confidence": ma.Certified(2.0, 0.1, double=True)},
                None,
            ),
            ({"kernel": KERNEL, "confidence": ma.Certified(2.0, 0.1)}, None),
            ({"kernel": KERNEL, "noise": 0.1, "confidence": ma.Bayes(0.05)}, 0.95),
        ],
    )
    @pytest.mark.parametrize("policy", [ma.GPUCB, ma.BKB], ids=lambda p: p.__name__)
    def test_what_it_promises(self, options, probability, policy):
        if policy is ma.BKB and isinstance(options.get("confidence"), ma.Bayes):
            probability = None  # it is proved for the exact posterior
        certificate = told(12, policy=policy, **options).certificate()
        text = str(certificate)
        assert certificate.sketch_error == 0 or policy is ma.BKB
        if probability is None:
            assert certificate.probability is None
            assert "heuristic" in text
        else:
            assert certificate.probability == pytest.approx(probability)
            assert "heuristic" not in text
            assert f"probability at least {probability:g}" in text

    @pytest.mark.parametrize(
        "policy", [ma.baselines.SoR, ma.baselines.RFF], ids=lambda p: p.__name__
    )
    def test_nothing_is_promised_for_policies_that_no_theorem_covers(self, policy):
        found = told(12, policy=policy, kernel=KERNEL, noise=0.1, confidence=ma.LogDet(2.0, 0.1))
        assert found.certificate().probability is None
        assert found.certificate().sketch_error is None
        assert policy.__name__ in str(found.certificate())
        assert "not known" in str(found.certificate())

    def test_a_tolerance(self):
        found = optimizer(repeats=2)
        run(found, 50)
        bound = found.certificate().regret_bound
        assert found.certificate().reached is None
        assert found.certificate(bound).reached is True
        assert found.certificate(bound * 0.99).reached is False
        assert found.certificate(0).reached is False
        assert "may stop" in str(found.certificate(bound))
        assert "not reached" in str(found.certificate(0))
        text = str(found.certificate())
        assert "tolerance" not in text
        assert f"Recommended: {found.best().recommended.id}" in text
        assert "50 results" in text

    def test_the_bound_falls_and_holds(self):
        found, exact = (
            optimizer(kernel=KERNEL, noise=0.1, confidence=ma.Bayes(0.1), policy=ma.GPUCB),
            [],
        )
        weights = np.random.default_rng(4).standard_normal(60)
        f = np.linalg.cholesky(KERNEL(found.pool.X, found.pool.X) + 1e-9 * np.eye(60)) @ weights
        for step in range(60):
            (name,) = found.ask()
            found.tell(name, f[name] + 2 * NOISE[step])
            certificate = found.certificate()
            exact.append(certificate.regret_bound)
            assert f.max() - f[certificate.id] <= certificate.regret_bound
        assert exact[-1] < exact[5] / 2


# Candidates come and go


class TestComings:
    line = np.linspace(0.0, 1.0, 30)[:, None]

    def test_promising_newcomers_are_asked_for(self):
        found = ma.Optimizer(self.line)
        found.tell(np.arange(0, 30, 2), self.line[::2, 0] ** 2)
        found.add(np.array([[1.1], [1.2], [-0.5]]))
        assert len(found.pool) == 33
        for _ in range(6):
            (name,) = found.ask()
            found.tell(name, float(found.pool.row(name)["x0"]) ** 2 if name != 32 else -1.0)
        assert found.best().recommended.id == 31

    @pytest.mark.parametrize("options", [{}, {"kernel": KERNEL, "noise": 0.1}])
    def test_what_is_known_stays(self, options):
        found = optimizer(policy=ma.GPUCB, **options)
        found.tell(ALL[:20], F[:20])
        asked, before, fit = found.ask(2), found.predict(ALL), found.noise
        found.retire(50)
        found.tell(51, failed=True)
        found.add(X[:5] + 3.0)
        assert found.pending == asked
        assert len(found.history) == 21
        assert found.noise == fit
        after = found.predict(ALL)
        np.testing.assert_allclose(after.mean, before.mean, atol=1e-9)
        np.testing.assert_allclose(after.std, before.std, atol=1e-9)
        assert not {50, 51} & set(found.ask(10))
        found.tell(asked, [0.0, 0.0])
        assert found.predict(np.arange(60, 65)).std.min() > before.std.min()

    def test_a_belief_about_a_given_kernel_goes_on_when_candidates_come_and_go(self):
        """So that what is certified stays certified."""
        found = told(20, kernel=KERNEL, noise=0.1, confidence=ma.Certified(2.0, 0.1))
        belief, log, before = found.policy.belief, found.policy.log, found.certificate()
        found.add(X[:5] + 0.5)
        found.retire([30, 31])
        assert found.policy.belief is belief
        assert found.policy.log is log
        assert found.policy.n_arms == 65
        after = found.certificate()
        assert (after.id, after.low, after.high, after.probability) == (
            before.id,
            before.low,
            before.high,
            0.9,
        )
        whole = ma.BKB(
            found.pool.X, KERNEL, regularization=0.1**2, confidence=ma.Certified(2.0, 0.1)
        )
        whole.observe(ALL[:20], found.policy.log.rewards)
        np.testing.assert_allclose(found.policy.scores().ucb, whole.scores().ucb, rtol=1e-9)

    def test_newcomers_that_are_known_rows_share_evidence(self):
        found = told(20)
        found.add(X[[3, 59]])
        np.testing.assert_array_equal(found.predict([60, 61]).mean, found.predict([3, 59]).mean)
        assert {c.id: c.n_results for c in found.top(62)}[60] == 0

    def test_before_any_result(self):
        found = ma.Optimizer(X[:3], repeats="never")
        first = found.ask(2)
        found.add(X[3:6])
        assert sorted(first + found.ask(9)) == list(range(6))

    def test_categories_may_be_new(self):
        found = ma.Optimizer([{"c": "ab"[i % 2], "x": float(i)} for i in range(20)])
        run(found, 10)
        found.add([{"x": 3.0, "c": "z"}])
        assert 20 in [c.id for c in found.top(21)]

    def test_a_pool_with_ids_of_its_own(self):
        found = ma.Optimizer(
            ma.Pool.from_dicts([{"id": f"a{i}", "x": float(i)} for i in range(9)], id="id")
        )
        found.tell("a3", 1.0)
        found.add([{"id": "b", "x": 2.5}])
        found.tell("b", 2.0)
        assert found.best().recommended.id == "b"

    def test_an_array_with_ids(self):
        found = ma.Optimizer(ma.Pool.from_array(X[:5], ids=list("abcde")))
        found.add(X[5:6], ids=["f"])
        assert "f" in found.ask(6)

    def test_retired_candidates_are_neither_asked_for_nor_recommended(self):
        found = told(30)
        best = found.best().recommended.id
        found.retire(best)
        found.retire([best, *range(31, 45)])
        gone = {best, *range(31, 45)}
        assert found.best().recommended.id not in gone
        assert not gone & {c.id for c in found.top(60)}
        assert len(found.top(60)) == 60 - len(gone)
        assert found.certificate().rival not in gone
        assert not gone & set(run(found, 15))
        assert not gone & set(found.ask(10))
        assert found.predict(best).mean[0] == pytest.approx(F[best], abs=0.3), (
            "what it taught stays"
        )

    def test_a_pending_one_may_retire_and_still_be_told(self):
        found = told(10, repeats="never")
        asked = found.ask(3)
        found.retire(asked[1])
        assert found.pending == [asked[0], asked[2]]
        found.tell(asked[1], 0.5)
        assert found.history[-1].id == asked[1]

    def test_no_retired_candidate_is_recommended_for_want_of_others(self):
        found = told(20)
        found.retire(ALL[:20])
        for call in (found.best, found.certificate):
            with pytest.raises(StateError):
                call()

    def test_the_top_of_nothing_is_empty(self):
        found = told(20)
        found.retire(ALL)
        assert found.top(3) == []


# Learning


def last_fit(optimizer):
    """How many results there were at the last fit; 0 where nothing was fitted."""
    return optimizer._state.model.plan.fitted


@pytest.mark.slow
def test_the_number_of_fits_grows_like_the_logarithm_of_results():
    found = ma.Optimizer(X[:15], policy=ma.GPUCB)
    fits = []
    for step in range(400):
        found.tell(step % 15, F[step % 15] + NOISE[step])
        if last_fit(found) == len(found.history):
            fits.append(last_fit(found))
    assert fits[0] == 1
    assert 15 <= len(fits) <= 40
    assert sum(200 < n <= 400 for n in fits) <= 5
    assert sum(100 < n <= 200 for n in fits) <= 5
    gaps = np.diff(fits)
    assert (gaps <= np.maximum(1, 0.25 * np.array(fits[:-1]))).all(), (
        "and it is never long out of date"
    )


def test_a_candidate_far_better_than_all_others_is_fitted_to_once():
    found = ma.Optimizer(X[:60], policy=ma.GPUCB)
    found.tell(range(50), F[:50])
    fits = []
    for _ in range(6):
        found.tell(55, 1e6)
        fits.append(last_fit(found))
    assert fits == [51] * 6


def test_nothing_is_fitted_where_nothing_is_learned():
    found = told(40, kernel=KERNEL, noise=0.1)
    found.ask(3)
    assert last_fit(found) == 0


def test_many_results_at_once():
    pool = np.random.default_rng(0).random((400, 2))
    found = ma.Optimizer(pool)
    told = np.concatenate([np.arange(270), np.arange(90)])  # those told again tell the noise
    found.tell(told, np.sin(5 * pool[told, 0]) + NOISE[: len(told)])
    predicted = found.predict(np.arange(270, 400)).mean
    assert np.abs(predicted - np.sin(5 * pool[270:, 0])).max() < 0.25
    assert 0.025 < found.noise < 0.15


def regrets(f, pool, repeats="allow"):
    """Of the recommended candidate after 60 results, and of the best-looking of 60 random ones, by seed, in ranges."""
    ours, random, span = [], [], np.ptp(f)
    for seed in range(5):
        rng = np.random.default_rng([seed, 10])
        found = ma.Optimizer(pool, seed=seed, repeats=repeats)
        for _ in range(60):
            (name,) = found.ask()
            found.tell(name, f[name] + 0.03 * span * rng.standard_normal())
        some = rng.choice(len(pool), 60, replace=False)
        pick = some[np.argmax(f[some] + 0.03 * span * rng.standard_normal(60))]
        ours.append((f.max() - f[found.best().recommended.id]) / span)
        random.append((f.max() - f[pick]) / span)
    return np.array(ours), np.array(random)


BUMP = np.array([0.7, 0.3])


@pytest.mark.slow
@pytest.mark.parametrize(
    "f",
    [
        pytest.param(lambda P: np.exp(-8 * np.square(P - BUMP).sum(axis=1)), id="bump"),
        pytest.param(
            lambda P: np.exp(-8 * np.square(P - BUMP).sum(axis=1)) + 0.5 * np.sin(6 * P[:, 0]),
            id="wave",
        ),
    ],
)
def test_good_candidates_are_found(f):
    pool = np.random.default_rng(1).random((2000, 2))
    ours, random = regrets(f(pool), pool)
    assert np.median(ours) < 0.03
    assert np.mean(ours) < np.mean(random)


@pytest.mark.slow
def test_thousands_of_candidates_tried_are_all_learned():
    """A limit of 2,048 inducing arms left out those of large numbers, however often they were tried."""
    rng = np.random.default_rng(0)
    rows = rng.random((2500, 2))
    values = np.sin(6 * rows[:, 0]) + 0.5 * rng.standard_normal(2500)
    values[2499] = 3.26
    found = ma.Optimizer(rows)
    tried = np.concatenate([np.arange(2500), np.full(20, 2499)])
    found.tell(tried, values[tried] + 0.1 * rng.standard_normal(len(tried)))
    (low,), (high,) = found.predict([2499])[3:]
    assert low < 3.26 < high
    assert high - low < 0.3
    assert found.best().recommended.id == 2499
    last = np.arange(2048, 2499)
    assert np.abs(found.predict(last).mean - values[last]).mean() < 0.2


def test_a_refit_is_as_good_as_any():
    """The loss of every fit of a run, beside fits from other lengthscales."""
    pool = np.random.default_rng(1).random((300, 2))
    f = np.exp(-8 * np.square(pool - BUMP).sum(axis=1)) + 0.5 * np.sin(6 * pool[:, 0])
    optimizer = ma.Optimizer(pool, seed=3, policy=ma.GPUCB)
    starts = [np.log([a, b, 0.05, 1.0, 0.02]) for a in (0.1, 1.0) for b in (0.1, 1.0)]
    gaps = []
    for step in range(40):
        (name,) = optimizer.ask()
        optimizer.tell(name, f[name] + NOISE[step])
        model = optimizer._state.model
        if model.plan.fitted < len(optimizer.history):
            continue
        others = [model.last._replace(found=fit_at(each)) for each in starts]
        losses = [
            fitted(
                model.settings.shape,
                model.arms,
                model.results,
                noise=model.settings.noise,
                schedule=model.settings.schedule,
                seed=model.settings.seed,
                near=other,
            ).found.loss
            for other in others
        ]
        gaps.append(model.fitted.loss - min(losses))
    assert len(gaps) > 5
    assert np.max(gaps) < 1.0


def fit_at(start):
    """A fit that ended at these log parameters, for the next one to start from."""
    return Fit(start[:-2], np.exp(start[-2]), np.exp(start[-1]), 0.0, 0.0)


# Values that are hard to learn from


class TestHardValues:
    @pytest.mark.parametrize("value", [0.0, 5.0, -1e6])
    def test_a_constant_function(self, value):
        found = ma.Optimizer(X, repeats=2)
        for _ in range(60):
            found.tell(found.ask(), [value])
        assert found.predict(np.arange(20)).mean == pytest.approx(value)
        assert np.isfinite(found.certificate().regret_bound)

    @pytest.mark.parametrize("value", [0.1, 1e9 + 0.1])
    def test_a_constant_function_whose_mean_is_rounded(self, value):
        found = ma.Optimizer(X[:20])
        found.tell([0, 0, 0, 1, 1, 2, 3, 4, 5, 6], [value] * 10)
        found.tell([0] * 5, [value] * 5)
        assert found.predict(np.arange(20)).mean == pytest.approx(value)
        assert (found.predict(np.arange(20)).std > 1e-9 * value).all(), (
            "nothing is known with certainty"
        )
        assert np.isfinite([found.certificate().low, found.certificate().high]).all()

    @pytest.mark.parametrize(
        "refit",
        [
            False,
            True,
        ],
    )
    @pytest.mark.parametrize("bad", [1e4, 1e6])
    def test_one_diverged_run_does_not_drown_the_rest(self, bad, refit):
        found, clean = told(20, direction="minimize"), told(20, direction="minimize")
        more = [*range(21, 26)] if refit else [21]
        for each in (found, clean):
            each.tell(more, F[more])
        found.tell(40, bad)
        if refit:
            found.tell(ALL[41:50], F[41:50])
            clean.tell(ALL[41:50], F[41:50])
        known = clean.predict(ALL[:20]).mean
        np.testing.assert_allclose(found.predict(ALL[:20]).mean, known, atol=0.3 * np.ptp(F))
        assert F[found.best().recommended.id] < np.quantile(F[:20], 0.2)

    @pytest.mark.parametrize("bad", [1e9, 1e90])
    def test_nor_one_that_is_out_of_all_bounds(self, bad):
        found = optimizer(direction="minimize")
        found.tell([*range(30), 40], [*F[:30], bad])
        assert found.predict(ALL[:30]).mean == pytest.approx(F[:30], abs=0.3 * np.ptp(F))
        assert F[found.best().recommended.id] < np.quantile(F[:30], 0.2)

    def test_a_step_and_ties(self):
        found = optimizer()
        run(found, 25, f=np.floor(2 * F))
        assert np.floor(2 * F)[found.best().recommended.id] >= np.floor(2 * F).max() - 1

    @pytest.mark.parametrize("noise", [1e-3, 1e-5, 1.0, 1e6])
    def test_noise_that_is_given(self, noise):
        found = told(30, noise=noise)
        assert np.isfinite(found.predict(ALL).mean).all()
        assert found.noise == pytest.approx(noise)

    @pytest.mark.parametrize("noise", [0.0, 1e-200, 1e-9])
    @pytest.mark.parametrize("kernel", [None, "linear", KERNEL])
    def test_noise_below_rounding_counts_as_a_little(self, noise, kernel):
        found = told(20, noise=noise, kernel=kernel)
        assert np.isfinite(found.predict(ALL).mean).all()
        assert 1e-7 < found.noise < 1e-3

    @pytest.mark.parametrize("kernel", [None, "linear"])
    def test_noise_whose_square_is_no_float_is_a_typed_error(self, kernel):
        with pytest.raises(ManyArmsError):
            optimizer(noise=1e200, kernel=kernel).tell(ALL[:20], F[:20])


# Bad input


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"direction": "max"}, ParameterError),
        ({"direction": None}, ParameterError),
        ({"direction": 1}, ParameterError),
        ({"kernel": "gauss"}, ParameterError),
        ({"kernel": 3}, KernelError),
        ({"kernel": ma.kernels.RBF}, KernelError),
        ({"kernel": lambda A, B: -(A @ B.T)}, KernelError),
        ({"kernel": ma.kernels.RBF([1.0, 1.0, 1.0])}, KernelError),
        ({"noise": -1.0}, ParameterError),
        ({"noise": np.nan}, ParameterError),
        ({"noise": "0.1"}, ParameterError),
        ({"noise": True}, ParameterError),
        ({"repeats": 0}, ParameterError),
        ({"repeats": -1}, ParameterError),
        ({"repeats": 1.5}, ParameterError),
        ({"repeats": True}, ParameterError),
        ({"repeats": "sometimes"}, ParameterError),
        ({"repeats": None}, ParameterError),
        ({"seed": -1}, ParameterError),
        ({"seed": 0.5}, ParameterError),
        ({"seed": None}, ParameterError),
        ({"seed": "0"}, ParameterError),
        ({"confidence": 2.0}, ParameterError),
        ({"confidence": ma.Constant}, ParameterError),
        ({"pool": np.zeros((0, 2))}, ArmsError),
        ({"pool": np.zeros((2, 0))}, ArmsError),
        ({"pool": np.zeros(3)}, ArmsError),
        ({"pool": np.array([[np.nan], [1.0]])}, ArmsError),
        ({"pool": np.array([[np.inf], [1.0]])}, ArmsError),
        ({"pool": []}, ArmsError),
        ({"pool": [{}]}, ArmsError),
        ({"pool": {}}, ArmsError),
        ({"pool": None}, ArmsError),
        ({"pool": pl.DataFrame({"x": []})}, ArmsError),
        ({"confidence": 0}, ParameterError),
        ({"policy": "bkb"}, ParameterError),
        ({"repeats": np.array([1, 2])}, ParameterError),
    ],
)
def test_wrong_settings_are_typed_errors(options, error):
    with pytest.raises(error) as caught:
        optimizer(**options)
    assert isinstance(caught.value, ManyArmsError)


CALLS = [
    (lambda o: o.tell(60, 1.0), UnknownArmError),
    (lambda o: o.tell(-1, 1.0), UnknownArmError),
    (lambda o: o.tell("3", 1.0), UnknownArmError),
    (lambda o: o.tell(True, 1.0), UnknownArmError),
    (lambda o: o.tell(3.0, 1.0), UnknownArmError),
    (lambda o: o.tell(None, 1.0), UnknownArmError),
    (lambda o: o.tell([30, 99], [1.0, 2.0]), UnknownArmError),
    (lambda o: o.tell([[30, 31]], [1.0, 2.0]), UnknownArmError),
    (lambda o: o.tell([30, 31], [1.0]), ObservationError),
    (lambda o: o.tell([30, 31], 1.0), ObservationError),
    (lambda o: o.tell(30, [1.0, 2.0]), ObservationError),
    (lambda o: o.tell([30, 31], ma.FAILED), ObservationError),
    (lambda o: o.tell(30), ObservationError),
    (lambda o: o.tell(30, None), ObservationError),
    (lambda o: o.tell([30, 31], [1.0, None]), ObservationError),
    (lambda o: o.tell([30, 31], [1.0, np.nan]), ObservationError),
    (lambda o: o.tell(30, np.inf), ObservationError),
    (lambda o: o.tell(30, -np.inf), ObservationError),
    (lambda o: o.tell([30, 31], np.array([1.0, -np.inf])), ObservationError),
    (lambda o: o.tell(30, "1.0"), ObservationError),
    (lambda o: o.tell([30, 31], [1.0, "good"]), ObservationError),
    (lambda o: o.tell(30, True), ObservationError),
    (lambda o: o.tell([30, 31], np.array([True, False])), ObservationError),
    (lambda o: o.tell([30, 31], [1.0, np.bool_(True)]), ObservationError),
    (lambda o: o.tell(30, 1j), ObservationError),
    (lambda o: o.tell(30, b"1"), ObservationError),
    (lambda o: o.tell([30, 31], [[1.0], [2.0]]), ObservationError),
    (lambda o: o.tell([30, 31], np.ma.array([1.0, 2.0], mask=[False, True])), ObservationError),
    (lambda o: o.tell(30, {"value": 1.0}), ObservationError),
    (lambda o: o.tell([30, 31], failed=False), ObservationError),
    (lambda o: o.tell([30, 31], failed=[True, False]), ObservationError),
    (lambda o: o.tell([30, 31], failed=[True]), ObservationError),
    (lambda o: o.tell([30, 31], failed="yes"), ObservationError),
    (lambda o: o.tell([30, 31], failed=[1, 0]), ObservationError),
    (lambda o: o.tell([30, 31], [1.0, np.nan], failed=[True, False]), ObservationError),
    (lambda o: o.ask(0), ParameterError),
    (lambda o: o.ask(-1), ParameterError),
    (lambda o: o.ask(1.0), ParameterError),
    (lambda o: o.ask(True), ParameterError),
    (lambda o: o.ask("2"), ParameterError),
    (lambda o: o.ask(None), ParameterError),
    (lambda o: o.release(59), StateError),
    (lambda o: o.release([*o.pending, o.pending[0]]), StateError),
    (lambda o: o.release([*o.pending, 99]), UnknownArmError),
    (lambda o: o.retire(60), UnknownArmError),
    (lambda o: o.retire([1, "a"]), UnknownArmError),
    (lambda o: o.predict(60), UnknownArmError),
    (lambda o: o.predict([1, None]), UnknownArmError),
    (lambda o: o.predict(1, level=0), ParameterError),
    (lambda o: o.predict(1, level=1), ParameterError),
    (lambda o: o.predict(1, level=95), ParameterError),
    (lambda o: o.predict(1, level=np.nan), ParameterError),
    (lambda o: o.predict(1, level="0.9"), ParameterError),
    (lambda o: o.best(level=1.5), ParameterError),
    (lambda o: o.top(level=-0.1), ParameterError),
    (lambda o: o.top(0), ParameterError),
    (lambda o: o.top(2.5), ParameterError),
    (lambda o: o.top(None), ParameterError),
    (lambda o: o.certificate(-0.1), ParameterError),
    (lambda o: o.certificate(np.inf), ParameterError),
    (lambda o: o.certificate(np.nan), ParameterError),
    (lambda o: o.certificate("0.1"), ParameterError),
    (lambda o: o.certificate(True), ParameterError),
    (lambda o: o.add(np.ones((2, 3))), ManyArmsError),
    (lambda o: o.add(np.ones(2)), ArmsError),
    (lambda o: o.add(np.zeros((0, 2))), ArmsError),
    (lambda o: o.add(np.array([[np.nan, 1.0]])), ArmsError),
    (lambda o: o.add(pl.DataFrame({"x0": [1.0], "x2": [1.0]})), ArmsError),
    (lambda o: o.add(pl.DataFrame({"x0": [1.0], "x1": ["a"]})), ArmsError),
    (lambda o: o.add([{"x0": 1.0}]), ArmsError),
    (lambda o: o.add([]), ArmsError),
    (lambda o: o.add(None), ArmsError),
]
UNTYPED = [
    (lambda o: o.tell(30, 10**400), ObservationError),
    (lambda o: o.tell([30, 31], [[1.0], [1.0, 2.0]]), ObservationError),
    (lambda o: o.tell([30, 31], failed=[[True], [True, False]]), ObservationError),
    (lambda o: o.tell([30, 31], [1.0, 2.0], failed=[[True, False]] * 2), ObservationError),
    (lambda o: o.tell([30, 31, 30], [1e308, 1.0, -1e308]), ManyArmsError),
    (lambda o: o.tell(30, np.array(True)), ObservationError),
]


@cache
def busy():
    """An optimizer with results, a failure and pending candidates, and what is seen of it."""
    found = told(15)
    found.ask(2)
    found.tell(50, failed=True)
    return found, snapshot(found)


@pytest.mark.parametrize(("call", "error"), [*CALLS, *UNTYPED])
def test_an_error_is_typed_and_changes_nothing(call, error):
    base, before = busy()
    found = copy.copy(base)
    with pytest.raises(error) as caught:
        call(found)
    assert isinstance(caught.value, ManyArmsError)
    assert len(str(caught.value)) > 20
    assert snapshot(found) == before


def test_columns_that_changed_change_nothing():
    rows = [{"metal": "ab"[i % 2], "heat": float(i), "bits": f"{i % 256:08b}"} for i in range(20)]
    found = ma.Optimizer(rows)
    run(found, 6)
    before = snapshot(found)
    for table in (
        [{"metal": "a", "heat": 1.0}],
        [{"metal": "a", "heat": 1.0, "bits": "00000001", "more": 1}],
        [{"metal": "a", "heat": "hot", "bits": "00000001"}],
        [{"metal": None, "heat": 1.0, "bits": "00000001"}],
        [{"metal": "a", "heat": 1.0, "bits": "001"}],
    ):
        with pytest.raises(ArmsError):
            found.add(table)
        assert snapshot(found) == before


def test_what_is_no_error():
    found = told(15)
    before = snapshot(found)
    found.tell([], [])
    found.retire([])
    found.release([])
    assert snapshot(found)[:4] == before[:4]
    found.tell([30, 31], (1, np.float32(2.0)))
    found.tell(np.array([32, 33], dtype=np.uint8), pl.Series([1.0, 2.0]))
    found.tell(np.int64(34), np.array(3.0))
    found.tell(pl.Series([35]), [np.int64(4)])
    assert [t.value for t in found.history[15:]] == [1.0, 2.0, 1.0, 2.0, 3.0, 4.0]
    assert all(type(t.id) is int and type(t.value) is float for t in found.history)


def test_constant_columns_and_one_row():
    found = ma.Optimizer(np.column_stack([X, np.full(60, 7.0)]))
    run(found, 12)
    assert set(found.importance) == {"x0", "x1"}
    one = ma.Optimizer(np.array([[1.0, 2.0]]))
    assert one.ask() == [0]
    for value in (5.0, 5.2, 4.9, 5.1, 5.0):
        one.tell(0, value)
    assert one.ask(2) == [0, 0]
    assert one.best().recommended.mean == pytest.approx(5.04, abs=0.2)
    assert one.certificate(100.0).reached
    alike = ma.Optimizer(np.ones((5, 2)), repeats="never")
    assert sorted(alike.ask(9)) == list(range(5))


# Ctrl-C


class Interrupted:
    """A kernel that raises at its n-th call from now."""

    def __init__(self):
        self.left = np.inf

    def __call__(self, A, B):
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt
        return KERNEL(A, B)


@pytest.mark.parametrize(
    "options", [{}, {"noise": 0.1}, {"noise": 0.1, "policy": ma.GPUCB}, {"rule": ma.Sampled(5.0)}]
)
def test_an_interrupted_call_changes_nothing(options):
    kernel = Interrupted()
    found, twin = told(19, kernel=kernel, **options), told(19, kernel=KERNEL, **options)
    for each in (found, twin):
        each.ask(2)
    calls = {
        "tell": lambda each: each.tell([30, 31, 32, 33, 34, 3], [1.0, 0.5, 0.2, 0.1, 0.0, 0.3]),
        "ask": lambda each: each.ask(3),
        "add": lambda each: each.add(X[:4] + 0.5),
        "best": lambda each: each.best(),
    }
    for name, call in calls.items():
        before, count = snapshot(found), 0
        while True:
            kernel.left = count
            try:
                result = call(found)
            except KeyboardInterrupt:
                kernel.left = np.inf
                assert snapshot(found) == before, (name, count)
                count += 1 + count
                continue
            break
        kernel.left = np.inf
        assert name in ("ask", "best") or count > 0, "it was interrupted"
        assert result == call(twin)
        assert found.history == twin.history
        assert found.pending == twin.pending
        np.testing.assert_allclose(found.predict(ALL).mean, twin.predict(ALL).mean, atol=1e-9)


def test_an_interrupted_fit_or_policy_changes_nothing(monkeypatch):
    def interrupted(*args, **options):
        raise KeyboardInterrupt

    class Interruptible(ma.BKB):
        """The policy, whose `observe` can be made to fail."""

    found = told(19, policy=Interruptible)
    found.ask()
    before = snapshot(found)
    # The fit, the policy and the units.
    for owner, name in ((optimize, "minimize"), (Interruptible, "observe"), (np, "median")):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, interrupted)
            with pytest.raises(KeyboardInterrupt):
                found.tell(ALL[30:40], F[30:40])
        assert snapshot(found) == before
    found.tell(ALL[30:40], F[30:40])
    assert len(found.history) == 29


def test_an_error_of_the_kernel_changes_nothing():
    def broken(A, B):
        return KERNEL(A, B) * (np.nan if broken.on else 1.0)

    broken.on = False
    found = told(12, kernel=broken, noise=0.1)
    before = snapshot(found)
    broken.on = True
    with pytest.raises(ManyArmsError):
        found.tell([30, 31, 32], [1.0, 2.0, 3.0])
    broken.on = False
    assert snapshot(found) == before
