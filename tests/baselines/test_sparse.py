"""Sparse GPs of fixed size: the textbook formulas, and what they get wrong."""

import numpy as np
import pytest
from oracles import dense
from problems import RKHSProblem, play

import manyarms as ma
from manyarms.errors import ArmsError, ParameterError, UnknownArmError

KERNEL = ma.kernels.Matern(0.3, 1.5)
DTC, SoR = ma.baselines.DTC, ma.baselines.SoR


def observed(policy, problem, rng, n=60):
    pulls = rng.integers(len(problem.arms), size=n)
    rewards = problem.pull(pulls)
    policy.observe(pulls[:25], rewards[:25])
    policy.observe(pulls[25:], rewards[25:])
    return pulls, rewards


@pytest.mark.parametrize("seed", range(4))
def test_dtc_is_the_sketched_posterior_on_its_dictionary(seed):
    problem = RKHSProblem(KERNEL, n_arms=120, seed=seed)
    S = np.random.default_rng(seed).permutation(120)[:15]
    policy = DTC(problem.arms, KERNEL, inducing=S, regularization=0.1)
    pulls, rewards = observed(policy, problem, np.random.default_rng(seed))
    mean, variance = dense.sketched(KERNEL, problem.arms, S, pulls, rewards, 0.1, problem.arms)
    np.testing.assert_allclose(policy.scores().mean, mean, atol=1e-8)
    np.testing.assert_allclose(policy.scores().variance, variance, rtol=1e-7)
    np.testing.assert_array_equal(policy.inducing, np.sort(S))


@pytest.mark.parametrize("seed", range(4))
def test_sor_is_the_exact_posterior_of_the_degenerate_kernel(seed):
    """Rasmussen and Williams (2006), Eq. 8.14, with T = (λK_SS + K_SX K_XS)⁻¹."""
    problem = RKHSProblem(KERNEL, n_arms=120, seed=seed)
    S = np.random.default_rng(seed).permutation(120)[:15]
    policy = SoR(problem.arms, KERNEL, inducing=S, regularization=0.1)
    pulls, rewards = observed(policy, problem, np.random.default_rng(seed))
    KS = KERNEL(problem.arms, problem.arms[S])
    T = np.linalg.inv(0.1 * KERNEL(problem.arms[S], problem.arms[S]) + KS[pulls].T @ KS[pulls])
    np.testing.assert_allclose(policy.predict().mean, KS @ T @ KS[pulls].T @ rewards, atol=1e-8)
    np.testing.assert_allclose(
        policy.predict().std ** 2, 0.1 * np.einsum("ij,jk,ik->i", KS, T, KS), rtol=1e-6
    )


def test_the_certified_radius_counts_what_the_dictionary_leaves_out():
    """The features are frozen before anything is seen: f is inside, and e = Σ ωr/λ."""
    radius = ma.Certified(norm=1.0, noise=0.1)
    covered = 0
    for seed in range(20):
        problem = RKHSProblem(KERNEL, n_arms=120, seed=seed)
        policy = DTC(problem.arms, KERNEL, inducing=8, confidence=radius, seed=seed)
        pulls, _ = observed(policy, problem, np.random.default_rng(seed))
        mean, variance, _ = policy.scores()
        covered += bool((np.abs(problem.f - mean) <= policy.beta * np.sqrt(variance)).all())
        S = policy.inducing
        KS = KERNEL(problem.arms[pulls], problem.arms[S])
        r = 1 - np.einsum(
            "ij,ij->i", KS @ np.linalg.inv(KERNEL(problem.arms[S], problem.arms[S])), KS
        )
        assert policy.evidence.left_out == pytest.approx(r.sum() / 0.01, rel=1e-6)
    assert covered >= 19


def test_sor_starves_where_dtc_does_not():
    """Figure 1: data on the left half; the exact deviation at 0.9 is that of the prior."""
    arms = np.linspace(0, 1, 101)[:, None]
    kernel = ma.kernels.RBF(np.sqrt(1 / 200))
    deviation = {}
    for policy in (SoR, DTC):
        bandit = policy(arms, kernel, inducing=np.arange(0, 51, 5), regularization=0.01)
        bandit.observe(np.arange(51), np.sin(arms[:51, 0]))
        deviation[policy] = bandit.predict().std
    assert deviation[SoR][90] < 1e-3
    assert deviation[DTC][90] == pytest.approx(1.0, abs=1e-3)
    np.testing.assert_allclose(deviation[SoR][:51], deviation[DTC][:51], atol=0.05)


def test_every_arm_inducing_is_the_exact_posterior():
    problem = RKHSProblem(KERNEL, n_arms=60, seed=1)
    exact = ma.GPUCB(problem.arms, KERNEL, regularization=0.1)
    policies = [
        policy(problem.arms, KERNEL, inducing=60, regularization=0.1) for policy in (DTC, SoR)
    ]
    chosen = play(exact, problem.pull, 30)
    for policy in policies:
        problem = RKHSProblem(KERNEL, n_arms=60, seed=1)
        np.testing.assert_array_equal(play(policy, problem.pull, 30)[1:], chosen[1:])
        np.testing.assert_allclose(policy.scores().variance, exact.scores().variance, rtol=1e-6)


def test_dtc_pulls_an_arm_it_cannot_represent_forever():
    arms = np.array([[0.0], [0.1], [5.0]])
    policy = DTC(
        arms, ma.kernels.RBF(0.3), inducing=[0, 1], regularization=0.01, confidence=ma.Constant(2.0)
    )
    chosen = play(policy, lambda pulled: np.where(pulled == 2, 0.0, 1.0), 50)
    assert (chosen[-30:] == 2).all()


def test_a_batch_of_no_given_size_is_one_arm():
    policy = SoR(np.linspace(0, 9, 10)[:, None], ma.kernels.RBF(0.3), inducing=[0])
    policy.observe(0, -5.0)
    np.testing.assert_array_equal(policy.choose(None), policy.choose())
    assert len(policy.choose(None, pending=[3])) == 0
    assert policy.choose(None, exclude=policy.choose()) != policy.choose()


def test_inducing_arms_are_drawn_by_the_seed():
    arms = np.random.default_rng(0).random((200, 2))
    drawn = [DTC(arms, KERNEL, inducing=20, seed=seed).inducing for seed in range(3)]
    assert all(len(np.unique(S)) == 20 for S in drawn)
    assert not np.array_equal(drawn[0], drawn[1])
    np.testing.assert_array_equal(drawn[2], DTC(arms, KERNEL, inducing=20, seed=2).inducing)
    assert len(DTC(arms[:5], KERNEL, inducing=20).inducing) == 5


@pytest.mark.parametrize(
    ("inducing", "error"),
    [
        (0, ParameterError),
        (2.5, ParameterError),
        ([], ParameterError),
        ([5], UnknownArmError),
        ([0.5], ArmsError),
    ],
)
def test_wrong_inducing_arms_are_typed_errors(inducing, error):
    with pytest.raises(error):
        DTC(np.arange(3.0)[:, None], KERNEL, inducing=inducing)
