"""What every policy promises, whatever its algorithm. A new policy is added to POLICIES and must pass all of it."""

import copy

import numpy as np
import pytest
from extras import needs
from hypothesis import given
from hypothesis import strategies as st
from oracles import dense
from problems import RKHSProblem, fingerprint, play, read_only

import manyarms as ma
from manyarms.bandit.policy import Policy
from manyarms.errors import (
    ArmsError,
    KernelError,
    ManyArmsError,
    NumericalError,
    ObservationError,
    ParameterError,
    StateError,
    UnknownArmError,
)

KERNEL = ma.kernels.Matern(0.3, 1.5)
ARMS = read_only(np.random.default_rng(0).random((80, 2)))


LAZY = ma.Tuning(shortlist=8, rough=0, quick=0)
DENSE = ma.Tuning(rough=10**9)
EVERYTHING = 1e300  # q̄ with which every pulled arm is drawn


def bkb(arms=ARMS, kernel=KERNEL, **options):
    return ma.BKB(arms, kernel, **options)


def lazy_bkb(arms=ARMS, kernel=KERNEL, **options):
    return ma.BKB(arms, kernel, tuning=LAZY, **options)


def dense_bkb(arms=ARMS, kernel=KERNEL, **options):
    return ma.BKB(arms, kernel, tuning=DENSE, **options)


def full_bkb(arms=ARMS, kernel=KERNEL, **options):
    return ma.BKB(arms, kernel, rule=ma.Inserted(tolerance=0.0), **options)


def full_lazy_bkb(arms=ARMS, kernel=KERNEL, **options):
    return ma.BKB(arms, kernel, rule=ma.Inserted(tolerance=0.0), tuning=LAZY, **options)


def full_dense_bkb(arms=ARMS, kernel=KERNEL, **options):
    return ma.BKB(arms, kernel, rule=ma.Inserted(tolerance=0.0), tuning=DENSE, **options)


def sampled(arms=ARMS, kernel=KERNEL, **options):
    return ma.BKB(arms, kernel, rule=ma.Sampled(oversampling=5.0), **options)


def full_sampled(arms=ARMS, kernel=KERNEL, **options):
    return ma.BKB(arms, kernel, rule=ma.Sampled(oversampling=EVERYTHING), **options)


def incremental(arms=ARMS, kernel=KERNEL, **options):
    return ma.BKB(arms, kernel, rule=ma.baselines.Incremental(oversampling=5.0), **options)


def full_incremental(arms=ARMS, kernel=KERNEL, **options):
    return ma.BKB(arms, kernel, rule=ma.baselines.Incremental(oversampling=EVERYTHING), **options)


def insertion(arms=ARMS, kernel=KERNEL, **options):
    return ma.BKB(arms, kernel, rule=ma.baselines.Insertion(oversampling=5.0), **options)


def full_insertion(arms=ARMS, kernel=KERNEL, **options):
    return ma.BKB(arms, kernel, rule=ma.baselines.Insertion(oversampling=EVERYTHING), **options)


def gpucb(arms=ARMS, kernel=KERNEL, **options):
    return ma.GPUCB(arms, kernel, **options)


def rff(arms=ARMS, kernel=KERNEL, **options):
    return ma.baselines.RFF(arms, kernel, **options)


def rff_thompson(arms=ARMS, kernel=KERNEL, **options):
    return ma.baselines.RFF(arms, kernel, choice="thompson", **options)


def qff(arms=ARMS, kernel=KERNEL, **options):
    return ma.baselines.QFF(arms, smooth(kernel), **options)


def qff_thompson(arms=ARMS, kernel=KERNEL, **options):
    return ma.baselines.QFF(arms, smooth(kernel), choice="thompson", **options)


def smooth(kernel):
    """The kernel of these tests, or a multiple, with RBF in the place of Matérn: QFF takes nothing else."""
    if isinstance(kernel, ma.kernels.Scaled):
        return kernel.constant * smooth(kernel.kernel)
    return ma.kernels.RBF(0.3) if kernel is KERNEL else kernel


def oful(arms=ARMS, **options):
    return ma.baselines.OFUL(arms, **options)


def oful_thompson(arms=ARMS, **options):
    return ma.baselines.OFUL(arms, choice="thompson", **options)


def cbrap(arms=ARMS, **options):
    return ma.baselines.CBRAP(arms, dimension=3, **options)


def soful(arms=ARMS, **options):
    return ma.baselines.SOFUL(arms, size=1, **options)


def soful_thompson(arms=ARMS, **options):
    return ma.baselines.SOFUL(arms, size=1, choice="thompson", **options)


FOURIER = [rff, rff_thompson, qff, qff_thompson]
LINEAR = [oful, oful_thompson, cbrap, soful, soful_thompson]
FEATURES = [rff, qff, oful, cbrap, soful]
THOMPSON = [rff_thompson, qff_thompson, oful_thompson, soful_thompson]


def uniform(arms=ARMS, kernel=KERNEL, **options):
    return ma.baselines.Uniform(arms, kernel, **options)


def epsilon_greedy(arms=ARMS, kernel=KERNEL, **options):
    return ma.baselines.EpsilonGreedy(arms, kernel, epsilon=0.3, **options)


def gp_ei(arms=ARMS, kernel=KERNEL, **options):
    return ma.baselines.GPEI(arms, kernel, **options)


def gp_pi(arms=ARMS, kernel=KERNEL, **options):
    return ma.baselines.GPPI(arms, kernel, **options)


def sketch_ei(arms=ARMS, kernel=KERNEL, **options):
    return ma.baselines.SketchEI(arms, kernel, **options)


def sketch_pi(arms=ARMS, kernel=KERNEL, **options):
    return ma.baselines.SketchPI(arms, kernel, **options)


def thompson(arms=ARMS, kernel=KERNEL, **options):
    return ma.baselines.Thompson(arms, kernel, **options)


def dtc(arms=ARMS, kernel=KERNEL, **options):
    return ma.baselines.DTC(arms, kernel, inducing=40, **options)


def sor(arms=ARMS, kernel=KERNEL, **options):
    return ma.baselines.SoR(arms, kernel, inducing=40, **options)


def local_batch(arms=ARMS, kernel=KERNEL, **options):
    return ma.baselines.LocalBatch(arms, kernel, **options)


def sup_kernel_ucb(arms=ARMS, kernel=KERNEL, **options):
    return ma.baselines.SupKernelUCB(arms, kernel, horizon=1000, **options)


def mini_ucb(arms=ARMS, kernel=KERNEL, **options):
    return ma.baselines.MiniMeta(ma.GPUCB(arms, kernel, **options))


def mini_ei(arms=ARMS, kernel=KERNEL, **options):
    return ma.baselines.MiniMeta(ma.baselines.GPEI(arms, kernel, **options))


def mini_ts(arms=ARMS, kernel=KERNEL, **options):
    return ma.baselines.MiniMeta(ma.baselines.Thompson(arms, kernel, **options))


# Those that evaluate an arm several times in a row, pending or not; `choose(None)` is an epoch of one arm.
REPEATING = [mini_ucb, mini_ei, mini_ts]
# Those whose dictionary is fixed: pulls do not shrink the part of a variance outside its span, so an arm may be chosen again.
FIXED = [dtc, sor]
# Those that choose the largest upper bound, the arms pending supposed pulled.
INSERTED = [bkb, lazy_bkb, dense_bkb, full_bkb, full_lazy_bkb, full_dense_bkb]
DRAWN = [sampled, full_sampled, incremental, full_incremental, insertion, full_insertion]
UPPER = [*INSERTED, *DRAWN, local_batch, gpucb, *FIXED, *FEATURES]
# Those whose choices are independent given what was observed: they may choose a pending arm again.
BLIND = [uniform, epsilon_greedy, thompson, *THOMPSON]
POLICIES = [*UPPER, *BLIND, gp_ei, gp_pi, sketch_ei, sketch_pi, sup_kernel_ucb, *REPEATING]
EXACT = [
    full_bkb,
    full_lazy_bkb,
    full_dense_bkb,
    full_sampled,
    full_incremental,
    full_insertion,
    gpucb,
]
# Those that `make quick` tests, one of each kind; `make test` tests all.
QUICK = [lazy_bkb, dense_bkb, sampled, gpucb, thompson, sketch_ei]


def each_of(policies):
    """A test for each policy, slow but for those of QUICK."""
    return pytest.mark.parametrize(
        "policy",
        [
            pytest.param(
                policy, id=policy.__name__, marks=[] if policy in QUICK else pytest.mark.slow
            )
            for policy in policies
        ],
    )


every_policy = each_of(POLICIES)
upper_policy = each_of(UPPER)
supposing_policy = each_of(policy for policy in POLICIES if policy not in BLIND + FIXED + REPEATING)
# Those whose `choose(None)` is ended by Batch-BKB's global rule; on a fixed dictionary it is one arm.
batch_policy = each_of(
    policy for policy in POLICIES if policy not in [*FIXED, *REPEATING, local_batch]
)
upper_batch_policy = each_of(policy for policy in UPPER if policy not in FIXED)
exact_policy = each_of(EXACT)


def test_every_policy_is_here():
    public = [getattr(ma.baselines, name) for name in ma.baselines.__all__]
    library = {found for found in public if issubclass(found, Policy | ma.baselines.MiniMeta)} | {
        ma.BKB,
        ma.GPUCB,
    }
    assert {type(policy()) for policy in POLICIES} == library


def takes_a_kernel(policy):
    """Linear bandits have their kernel fixed; what they do with scaled arms is in test_features.py."""
    if policy in LINEAR:
        pytest.skip("a linear bandit takes no kernel")


def takes_any_kernel(policy):
    """Fourier features are of the kernels whose spectral density is known."""
    takes_a_kernel(policy)
    if policy in FOURIER:
        pytest.skip("Fourier features take no kernel made elsewhere")


def observes_by_the_kernel(policy):
    """On a fixed dictionary the kernel is called once, at construction."""
    takes_any_kernel(policy)
    if policy in FIXED:
        pytest.skip("an observation does not call the kernel")


def explores_eight_directions(policy):
    """With two columns a linear bandit has nothing to learn of a third arm that it could not of the first two."""
    if policy in LINEAR:
        pytest.skip("eight arms of two columns are not eight directions")


def trained(policy, steps=12, **options):
    bandit = policy(**options)
    rng = np.random.default_rng(5)
    play(
        bandit, lambda arms: np.sin(5 * ARMS[arms, 0]) + 0.1 * rng.standard_normal(len(arms)), steps
    )
    return bandit


@every_policy
class TestChoosing:
    def test_it_returns_arm_indices(self, policy):
        for bandit in (policy(), trained(policy)):
            for n in (1, 2, 5):
                arms = bandit.choose(n)
                assert arms.shape == (n,)
                assert arms.dtype == np.intp
                assert ((arms >= 0) & (arms < 80)).all()

    def test_it_is_pure(self, policy):
        for bandit in (policy(), trained(policy)):
            before = fingerprint(bandit)
            first = bandit.choose(6, pending=[3, 4])
            bandit.scores(), bandit.predict(ARMS[:3]), bandit.beta
            np.testing.assert_array_equal(bandit.choose(6, pending=[3, 4]), first)
            assert fingerprint(bandit) == before

    @pytest.mark.slow
    def test_the_first_arm_is_uniform_and_fixed_by_the_seed(self, policy):
        firsts = [int(policy(seed=seed).choose()[0]) for seed in range(200)]
        assert firsts == [int(policy(seed=seed).choose()[0]) for seed in range(200)]
        assert np.unique(firsts).size > 60  # of 80; 73 expected

    def test_a_batch_is_a_sequence_of_pending_choices(self, policy):
        for bandit in (policy(), trained(policy)):
            batch = bandit.choose(6)
            for j in range(6):
                assert bandit.choose(pending=batch[:j])[0] == batch[j]

    @pytest.mark.parametrize("n", [0, -1, 1.5, True, "2"])
    def test_a_wrong_n_is_a_typed_error(self, policy, n):
        with pytest.raises(ParameterError):
            policy().choose(n)

    def test_wrong_pending_arms_are_a_typed_error(self, policy):
        with pytest.raises(UnknownArmError):
            policy().choose(pending=[80])


@batch_policy
def test_a_rule_ends_a_batch_of_no_given_size(policy):
    assert len(policy().choose(None)) == 1
    assert len(policy().choose(None, pending=[3])) == 0
    bandit, longest = trained(policy, 20, regularization=0.5), 0
    while longest < 5:
        variance, batch = bandit.scores().variance, bandit.choose(None)
        np.testing.assert_array_equal(bandit.choose(None), batch)
        np.testing.assert_array_equal(bandit.choose(len(batch)), batch)
        assert 1 + variance[batch[:-1]].sum() <= 2 < 1 + variance[batch].sum()
        halves = bandit.choose(None, pending=batch[: len(batch) // 2])
        np.testing.assert_array_equal(np.sort(halves), np.sort(batch[len(batch) // 2 :]))
        assert len(bandit.choose(None, pending=batch)) == 0
        bandit.observe(batch, np.sin(5 * ARMS[batch, 0]))
        longest = max(longest, len(batch))


@upper_batch_policy
def test_the_first_of_a_batch_has_the_largest_upper_bound(policy):
    """A batch of no given size is chosen with the policy's own radius."""
    bandit = trained(policy)
    assert bandit.choose(None)[0] == np.argmax(bandit.scores().ucb)


@every_policy
def test_the_highest_arm_is_that_of_largest_upper_bound_whatever_is_chosen(policy):
    bandit = trained(policy, 4)  # before, all arms tie
    for _ in range(4):
        ucb = bandit.scores().ucb.copy()
        assert bandit.highest() == np.argmax(ucb)
        first = np.argsort(-ucb)[:5]
        ucb[first] = -np.inf
        assert bandit.highest(exclude=first) == np.argmax(ucb)
        play(bandit, lambda arms: np.sin(5 * ARMS[arms, 0]), 5)


@every_policy
def test_the_leading_arms_are_those_of_largest_mean(policy):
    bandit = trained(policy, 4)
    for _ in range(4):
        mean = bandit.scores().mean
        order = np.argsort(-mean, kind="stable")
        np.testing.assert_allclose(mean[bandit.leading(5)], mean[order[:5]], rtol=1e-12)
        left = bandit.leading(len(mean), exclude=order[:5])
        assert set(left) == set(order[5:])
        np.testing.assert_allclose(mean[left], mean[order[5:]], rtol=1e-12, atol=1e-15)
        play(bandit, lambda arms: np.sin(5 * ARMS[arms, 0]), 5)


@every_policy
def test_arms_may_be_given_by_value(policy):
    X = read_only(np.random.default_rng(3).random((9, 2)))
    for bandit in (policy(), trained(policy)):
        before = fingerprint(bandit)
        chosen = bandit.choose(4, arms=X, pending=X[:2], exclude=[5])
        np.testing.assert_array_equal(bandit.choose(4, arms=X, pending=X[:2], exclude=[5]), chosen)
        assert fingerprint(bandit) == before
        assert ((chosen >= 0) & (chosen < 9) & (chosen != 5)).all()
        counts = bandit.counts
        bandit.observe(X[chosen], np.ones(4))
        np.testing.assert_array_equal(bandit.counts, counts)
        assert bandit.evidence.n_observations == counts.sum() + 4
        assert bandit.choose(arms=X).shape == (1,)
        assert bandit.choose().shape == (1,)
        bandit.observe(3, 0.0)
        assert bandit.choose(2, arms=X).shape == (2,)


@supposing_policy
class TestSupposing:
    def test_a_batch_of_eight_from_an_unexplored_pool_holds_eight_arms(self, policy):
        explores_eight_directions(policy)
        for seed in range(5):
            assert np.unique(policy(seed=seed, regularization=0.01).choose(8)).size == 8

    def test_pending_arms_are_taken_into_account(self, policy):
        bandit = policy()
        bandit.observe(0, 0.0)
        arm = bandit.choose()
        assert bandit.choose(pending=arm) != arm


@upper_policy
class TestUpperBounds:
    def test_it_takes_the_largest_score(self, policy):
        bandit = trained(policy)
        mean, variance, ucb = bandit.scores()
        np.testing.assert_allclose(ucb, mean + bandit.beta * np.sqrt(variance))
        assert bandit.choose()[0] == np.argmax(ucb)


@every_policy
class TestObserving:
    @pytest.mark.parametrize(
        ("arms", "rewards", "error"),
        [
            ([1], [np.nan], ObservationError),
            ([1, 2], [0.0, np.inf], ObservationError),
            ([1, 2], [0.0, -np.inf], ObservationError),
            ([1, 2], [0.0], ObservationError),
            ([1], [0.0, 1.0], ObservationError),
            ([1], [], ObservationError),
            ([1], None, ObservationError),
            ([1], [None], ObservationError),
            ([1], ["0.5"], ObservationError),
            ([1], [1j], ObservationError),
            ([1], [[0.5]], ObservationError),
            ([1, 2], [[0.5], [0.5, 1.0]], ObservationError),
            ([1], [np.longdouble("1e400")], ObservationError),
            ([1, 1], [1.7e308, 1.7e308], ObservationError),
            ([80], [0.0], UnknownArmError),
            ([-1], [0.0], UnknownArmError),
            ([2**40], [0.0], UnknownArmError),
            ([np.uint64(2**63 + 5)], [0.0], UnknownArmError),
            ([2**70], [0.0], ArmsError),
            ([1.0], [0.0], ArmsError),
            ([1.5], [0.0], ArmsError),
            ([np.nan], [0.0], ArmsError),
            ([True], [0.0], ArmsError),
            (["1"], [0.0], ArmsError),
            ([[1]], [0.0], ArmsError),
            (None, [0.0], ArmsError),
            (np.ma.array([1, 2], mask=[0, 1]), [0.0, 1.0], ArmsError),
            ([1, 2], np.ma.array([1.0, 2.0], mask=[0, 1]), ObservationError),
        ],
    )
    def test_bad_observations_are_typed_errors_and_change_nothing(
        self, policy, arms, rewards, error
    ):
        for bandit in (policy(), trained(policy)):
            before, choice = fingerprint(bandit), bandit.choose(3)
            with pytest.raises(error):
                bandit.observe(arms, rewards)
            assert fingerprint(bandit) == before
            np.testing.assert_array_equal(bandit.choose(3), choice)

    @pytest.mark.parametrize(
        "noise",
        [
            0.0,
            -1.0,
            np.nan,
            np.inf,
            [0.1],
            [0.1, 0.1, 0.1],
            "0.1",
            1e-300,
            1e300,
            1j,
            [[1.0], [1.0, 2.0]],
        ],
    )
    def test_bad_noise_is_a_typed_error_and_changes_nothing(self, policy, noise):
        bandit = trained(policy)
        before = fingerprint(bandit)
        with pytest.raises(ObservationError):
            bandit.observe([1, 2], [0.0, 0.0], noise=noise)
        assert fingerprint(bandit) == before

    def test_a_kernel_that_fails_in_the_middle_changes_nothing(self, policy):
        observes_by_the_kernel(policy)

        class Failing(ma.kernels.Kernel):
            armed = False

            def __call__(self, X, Y):
                if self.armed:
                    raise KernelError("the kernel failed")
                return KERNEL(X, Y)

            def diag(self, X):
                return KERNEL.diag(X)

        kernel = Failing()
        bandit = policy(kernel=kernel)
        bandit.observe([1, 2], [0.0, 1.0])
        before = fingerprint(bandit)
        kernel.armed = True
        with pytest.raises(KernelError):
            bandit.observe(3, 0.0)
        kernel.armed = False
        assert fingerprint(bandit) == before

    def test_an_interrupt_at_any_kernel_call_changes_nothing(self, policy):
        observes_by_the_kernel(policy)

        class Interrupting(ma.kernels.Kernel):
            left = 10**9

            def __call__(self, X, Y):
                self.left -= 1
                if self.left < 0:
                    raise KeyboardInterrupt
                return KERNEL(X, Y)

            def diag(self, X):
                return KERNEL.diag(X)

        kernel = Interrupting()
        bandit = policy(kernel=kernel)
        bandit.observe([1, 2], [0.0, 1.0])
        for calls in range(20):
            before = fingerprint(bandit)
            kernel.left = calls
            try:
                bandit.observe([3, 1], [0.0, 0.5])
            except KeyboardInterrupt:
                kernel.left = 10**9
                assert fingerprint(bandit) == before
            else:
                break
        kernel.left = 10**9
        assert 0 < calls < 19
        assert bandit.counts[3] == 1

    def test_evidence_beyond_rounding_is_a_typed_error(self, policy):
        bandit = policy(regularization=0.01)
        before = fingerprint(bandit)
        with pytest.raises(NumericalError, match="noise"):
            bandit.observe([0], [1.0], noise=1e-9)
        assert fingerprint(bandit) == before

    def test_nothing_observed_is_nothing_changed(self, policy):
        bandit = trained(policy)
        before = fingerprint(bandit)
        bandit.observe([], [])
        assert fingerprint(bandit) == before

    def test_what_is_passed_in_is_not_changed(self, policy):
        bandit = policy()
        arms, rewards = read_only([1, 2, 1]), read_only([0.0, 1.0, 2.0])
        bandit.observe(arms, rewards, noise=read_only([0.1, 0.2, 0.3]))
        bandit.predict(read_only(ARMS[:4]))

    def test_results_cannot_change_the_policy(self, policy):
        bandit = trained(policy)
        for array in bandit.scores():
            assert not array.flags.writeable
        counts = bandit.counts
        counts[:] = -1
        assert bandit.counts.sum() == 12

    def test_counts_and_kinds_of_rewards(self, policy):
        bandit = policy()
        bandit.observe(3, 1)
        bandit.observe([3, 4], [True, False])
        bandit.observe(np.array([5], dtype=np.uint8), np.array([0.5], dtype=np.float32))
        np.testing.assert_array_equal(np.flatnonzero(bandit.counts), [3, 4, 5])
        assert bandit.counts[3] == 2

    def test_the_order_within_a_call_does_not_matter(self, policy):
        arms, rewards = np.array([5, 3, 5, 9]), np.array([0.1, 0.7, 0.2, -0.3])
        one, other = policy(), policy()
        one.observe(arms, rewards)
        other.observe(arms[::-1], rewards[::-1])
        np.testing.assert_allclose(one.scores(), other.scores(), rtol=1e-9, atol=1e-12)

    def test_noise_is_a_weight(self, policy):
        plain, weighted = policy(regularization=0.04), policy(regularization=0.04)
        plain.observe([3, 3, 3, 3, 7], [1.0, 1.0, 1.0, 1.0, 0.0])
        weighted.observe([3, 7], [1.0, 0.0], noise=[0.1, 0.2])
        np.testing.assert_allclose(weighted.counts, plain.counts)
        np.testing.assert_allclose(
            weighted.scores().mean, plain.scores().mean, rtol=1e-9, atol=1e-12
        )
        np.testing.assert_allclose(weighted.scores().variance, plain.scores().variance, rtol=1e-9)


@every_policy
class TestAnswers:
    def test_a_deep_copy_goes_its_own_way(self, policy):
        bandit = trained(policy)
        twin = copy.deepcopy(bandit)
        assert type(twin) is type(bandit)
        before = fingerprint(bandit)
        np.testing.assert_array_equal(twin.choose(3), bandit.choose(3))
        twin.observe([7, 8], [1.0, 2.0])
        assert fingerprint(bandit) == before

    def test_a_kernel_made_elsewhere_keeps_its_arrays(self, policy):
        takes_any_kernel(policy)

        class Remembering(ma.kernels.Kernel):
            def __init__(self):
                self.memory = {}

            def __call__(self, X, Y):
                K = (np.round(10 * X) @ np.round(10 * Y).T).astype(int)
                return self.memory.setdefault((X.tobytes(), Y.tobytes()), read_only(K))

            def diag(self, X):
                return np.square(np.round(10 * X)).sum(axis=1).astype(int)

        kernel = 0.01 * ma.kernels.as_kernel(Remembering()) + ma.kernels.as_kernel(Remembering())
        bandit = policy(kernel=kernel, regularization=1.0)
        bandit.observe([1, 5, 9], [0.0, 1.0, 2.0])
        assert np.isfinite(bandit.scores()).all()
        assert repr(bandit).startswith(type(bandit).__name__)

    def test_predict_is_the_scores_in_reward_units(self, policy):
        bandit = trained(policy, regularization=0.02)
        mean, std = bandit.predict()
        np.testing.assert_allclose(mean, bandit.scores().mean)
        np.testing.assert_allclose(std, np.sqrt(0.02 * bandit.scores().variance))
        for found, expected in zip(bandit.predict(ARMS), (mean, std), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-10)

    def test_best_has_the_largest_lower_bound_of_the_pulled_arms(self, policy):
        with pytest.raises(StateError):
            _ = policy().best
        bandit = trained(policy)
        mean, variance, _ = bandit.scores()
        lower = mean - bandit.beta * np.sqrt(variance)
        pulled = np.flatnonzero(bandit.counts)
        assert bandit.best == pulled[np.argmax(lower[pulled])]

    @pytest.mark.parametrize(
        "X",
        [[[np.nan, 0.0]], [[0.0]], [0.0, 1.0], [["a", "b"]], np.zeros((0, 2)), [[0.0, 1.0], [0.0]]],
    )
    def test_rows_that_are_no_rows_are_typed_errors(self, policy, X):
        with pytest.raises(ArmsError):
            trained(policy).predict(X)
        with pytest.raises(ArmsError):
            trained(policy, 3).predict(X)


@each_of(policy for policy in POLICIES if policy is not sor)
def test_before_any_observation_it_is_the_prior(
    policy,
):  # but for SoR, which has a prior of its own
    takes_a_kernel(policy)
    mean, std = policy(kernel=4.0 * KERNEL).predict()
    assert (mean == 0).all()
    np.testing.assert_allclose(std, 2.0)
    np.testing.assert_allclose(policy(kernel=4.0 * KERNEL).predict(ARMS[:3]).std, 2.0)
    assert policy().effective_dimension == 0


@every_policy
@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"arms": np.zeros((0, 2))}, ArmsError),
        ({"arms": np.zeros((2, 0))}, ArmsError),
        ({"arms": np.zeros(3)}, ArmsError),
        ({"arms": [[np.inf]]}, ArmsError),
        ({"arms": [["x"]]}, ArmsError),
        ({"kernel": "rbf"}, KernelError),
        ({"kernel": lambda X, Y: -(X @ Y.T)}, KernelError),
        ({"regularization": 0.0}, ParameterError),
        ({"regularization": -1.0}, ParameterError),
        ({"regularization": np.nan}, ParameterError),
        ({"regularization": "0.1"}, ParameterError),
        ({"regularization": True}, ParameterError),
        ({"regularization": 10**400}, ParameterError),
        ({"arms": np.ma.array([[1.0], [2.0]], mask=[[0], [1]])}, ArmsError),
        ({"kernel": ma.kernels.RBF([1.0, 2.0, 3.0])}, KernelError),
        ({"kernel": lambda X, Y: np.exp(X[:, :1] - Y[:, :1].T)}, KernelError),
        ({"confidence": ma.Constant}, ParameterError),
        ({"seed": -1}, ParameterError),
        ({"seed": 1.5}, ParameterError),
        ({"seed": None}, ParameterError),
    ],
)
def test_wrong_settings_are_typed_errors(policy, options, error):
    if "kernel" in options:
        takes_a_kernel(policy)
    with pytest.raises(error) as caught:
        policy(**options)
    assert isinstance(caught.value, ManyArmsError)


@every_policy
def test_wrong_kernels_of_scikit_learn_are_typed_errors(policy):
    takes_a_kernel(policy)
    sk = needs("dev", "sklearn.gaussian_process.kernels")
    for kernel in (sk.RBF([1.0, 2.0, 3.0]), sk.RBF(0.3) + sk.WhiteKernel(0.1)):
        with pytest.raises(KernelError):
            policy(kernel=kernel)


@every_policy
class TestInvariance:
    def played(self, policy, arms, kernel, regularization, scale=1.0, steps=40):
        takes_a_kernel(policy)
        problem = RKHSProblem(KERNEL, n_arms=60, d=2, seed=7)
        bandit = policy(arms=arms, kernel=kernel, regularization=regularization, seed=3)
        return play(bandit, lambda chosen: scale * problem.pull(chosen), steps)

    @pytest.mark.slow
    @pytest.mark.parametrize("scale", [2.0**-20, 1e-3, 1e6])
    def test_rescaling_rewards_and_kernel_changes_no_choice(self, policy, scale):
        arms = RKHSProblem(KERNEL, n_arms=60, d=2, seed=7).arms
        expected = self.played(policy, arms, KERNEL, 0.01)
        found = self.played(policy, arms, scale**2 * KERNEL, 0.01 * scale**2, scale)
        np.testing.assert_array_equal(found, expected)

    def test_shifting_the_arms_changes_no_choice_of_a_stationary_kernel(self, policy):
        arms = RKHSProblem(KERNEL, n_arms=60, d=2, seed=7).arms
        expected = self.played(policy, arms, KERNEL, 0.01)
        np.testing.assert_array_equal(self.played(policy, arms + 1024.0, KERNEL, 0.01), expected)


@exact_policy
def test_copies_and_earlier_states_do_not_disturb_each_other(policy):
    def compare(bandit, pulls, rewards):
        fresh = gpucb()
        fresh.observe(pulls, rewards)
        np.testing.assert_allclose(bandit.scores().mean, fresh.scores().mean, atol=1e-9)
        np.testing.assert_allclose(bandit.scores().variance, fresh.scores().variance, rtol=1e-9)

    bandit = policy()
    bandit.observe([1, 1, 1, 1], [1.0, 1.0, 1.0, 1.0])
    twin, earlier = copy.copy(bandit), bandit._state
    for arm, reward in ((1, 2.0), (2, 2.0), (1, 0.0), (3, 0.0)):
        bandit.observe(arm, reward)
        bandit.choose(2)
        twin.observe(arm - 1, -5.0)
        twin.choose(2)
    compare(bandit, [1, 1, 1, 1, 1, 2, 1, 3], [1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 0.0, 0.0])
    compare(twin, [1, 1, 1, 1, 0, 1, 0, 2], [1.0, 1.0, 1.0, 1.0, -5.0, -5.0, -5.0, -5.0])
    bandit._state = earlier
    bandit.observe([40, 1], [1.0, 3.0])
    compare(bandit, [1, 1, 1, 1, 40, 1], [1.0, 1.0, 1.0, 1.0, 1.0, 3.0])


@exact_policy
class TestRelabelling:
    """With every pulled arm inducing nothing is left to chance: relabelled and duplicated arms give the same choices."""

    problem = RKHSProblem(KERNEL, n_arms=50, d=2, noise=0.0, seed=2)

    def played(self, policy, rows):
        bandit = policy(arms=self.problem.arms[rows])
        bandit.observe(int(np.flatnonzero(rows == 0)[0]), self.problem.f[0])
        return rows[play(bandit, lambda chosen: self.problem.f[rows[chosen]], 30)]

    def test_a_permutation(self, policy):
        rows = np.random.default_rng(1).permutation(50)
        np.testing.assert_array_equal(self.played(policy, rows), self.played(policy, np.arange(50)))

    def test_duplicates(self, policy):
        rows = np.concatenate([np.arange(50), np.arange(50)[::-1]])
        np.testing.assert_array_equal(self.played(policy, rows), self.played(policy, np.arange(50)))

    def test_of_duplicates_the_first_is_chosen(self, policy):
        rows = np.repeat(np.arange(25), 2)
        bandit = policy(arms=self.problem.arms[rows])
        bandit.observe(0, self.problem.f[0])
        assert (play(bandit, lambda chosen: self.problem.f[rows[chosen]], 30) % 2 == 0).all()


@pytest.mark.slow
@exact_policy
@given(
    st.lists(
        st.tuples(
            st.lists(st.integers(0, 11), min_size=1, max_size=6),
            st.sampled_from([None, 0.05, 0.3]),
        ),
        max_size=12,
    )
)
def test_any_sequence_of_observations_equals_the_dense_formula(policy, calls):
    arms = np.linspace(0.0, 1.0, 12)[:, None]
    bandit = policy(arms=arms, kernel=ma.kernels.RBF(0.25), regularization=0.05)
    rng = np.random.default_rng(0)
    pulls, rewards, noises = [], [], []
    for chosen, noise in calls:
        y = rng.standard_normal(len(chosen))
        bandit.observe(chosen, y, noise=noise)
        pulls += chosen
        rewards += list(y)
        noises += [np.sqrt(0.05) if noise is None else noise] * len(chosen)
    kernel = ma.kernels.RBF(0.25)
    rows, variances = arms[pulls], np.square(noises)
    if pulls:
        T = np.linalg.inv(kernel(rows, rows) + np.diag(variances))
        K = kernel(arms, rows)
        expected = K @ T @ np.array(rewards), (1 - np.einsum("ij,jk,ik->i", K, T, K)) / 0.05
    else:
        expected = dense.exact(kernel, arms, [], [], 0.05, arms)
    mean, variance, _ = bandit.scores()
    np.testing.assert_allclose(mean, expected[0], atol=1e-8)
    np.testing.assert_allclose(variance, expected[1], rtol=1e-8)
    weights = np.zeros(12)
    np.add.at(weights, np.array(pulls, dtype=int), 0.05 / variances)
    np.testing.assert_allclose(bandit.counts, weights)


@every_policy
def test_excluded_arms_are_not_chosen(policy):
    bandit = policy()
    first = int(bandit.choose()[0])
    assert bandit.choose(exclude=[first])[0] == (first + 1) % 80
    bandit.observe([1, 2, 3], [0.1, 0.2, 0.9])
    wanted = bandit.choose(3)
    assert not np.isin(bandit.choose(5, exclude=wanted), wanted).any()
    assert not np.isin(bandit.choose(None, exclude=wanted), wanted).any()
    mask = np.ones(80, dtype=bool)
    mask[7] = False
    np.testing.assert_array_equal(bandit.choose(2, exclude=mask), [7, 7])
    np.testing.assert_array_equal(bandit.choose(exclude=np.flatnonzero(mask), pending=[3]), [7])
    with pytest.raises(StateError, match="no arm is left"):
        bandit.choose(exclude=np.arange(80))
    with pytest.raises(UnknownArmError):
        bandit.choose(exclude=[80])
