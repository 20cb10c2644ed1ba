"""Noise that is told with each value, that is estimated, or that is not there."""

import numpy as np
import pytest

import manyarms as ma
from manyarms.baselines.estimated import EstimatedNoise, lower_quantile
from manyarms.campaign.fitting import Fixed, Summary, fit, likelihood
from manyarms.engine.exact import ExactPosterior
from manyarms.errors import ArmsError, ObservationError, ParameterError
from manyarms.kernels import RBF


def test_the_likelihood_takes_told_noise_as_it_is():
    """Against the density of all observations, some of noise σ², some of a noise that is told."""
    rng = np.random.default_rng(0)
    X, known = rng.random((6, 2)), np.array([0.0, 0.3, 0.0, 0.05, 0.0, 1.0])
    y, gram = rng.standard_normal(6), Fixed(RBF(0.4)).gram(X)
    evidence = Summary(X, y, np.where(known > 0, np.inf, 1.0), 0.0, 0.0, known)
    for log_noise in (-2.0, 0.5):
        x = np.array([0.2, log_noise])
        S = np.exp(0.2) * RBF(0.4)(X, X) + np.diag(np.where(known > 0, known, np.exp(log_noise)))
        inverse = np.linalg.inv(S)
        m = inverse.sum(axis=0) @ y / inverse.sum()
        dense = 0.5 * (y - m) @ inverse @ (y - m) + 0.5 * np.linalg.slogdet(S)[1]
        value, gradient, mean = likelihood(gram, evidence, x)
        assert (value, mean) == (pytest.approx(dense), pytest.approx(m))
        step = 1e-6 * np.array([0, 1])
        slope = (
            likelihood(gram, evidence, x + step)[0] - likelihood(gram, evidence, x - step)[0]
        ) / 2e-6
        assert gradient[1] == pytest.approx(slope, rel=1e-4)
    some = evidence.some(np.array([1, 4]))
    assert np.array_equal(some.known, [0.3, 0.0])
    assert np.isfinite(fit(Fixed(RBF(0.4)), evidence).loss)


def test_told_noise_weighs_values_with_a_kernel_that_is_given():
    """The exact posterior of a regression whose observations have each their own variance."""
    X, y, sd = (
        np.linspace(0, 1, 6)[:, None],
        np.array([0.0, 1.0, 0.5, 2.0, 1.0, 0.0]),
        np.array([0.1, 0.5, 0.1, 2.0, 0.3, 0.1]),
    )
    opt = ma.Optimizer(X, kernel=RBF(0.4), noise=0.1, policy=ma.GPUCB)
    opt.tell(list(range(6)), y, noise=[None, 0.5, None, 2.0, 0.3, 0.1])
    weights = 0.01 / sd**2
    posterior = ExactPosterior.fit(RBF(0.4), X, weights, weights * y, 0.01)
    mean, variance = posterior.moments(X, np.ones(6))
    predicted = opt.predict(list(range(6)))
    np.testing.assert_allclose(predicted.mean, mean, rtol=1e-9)
    np.testing.assert_allclose(predicted.std, np.sqrt(0.01 * variance), rtol=1e-9)
    assert [trial.noise for trial in opt.history] == [None, 0.5, None, 2.0, 0.3, 0.1]


def test_values_told_to_be_noisy_do_not_mislead_what_is_learned():
    """A smooth function, half of its values spoilt by noise that is told: predictions stay good, the others' noise is found."""
    rng = np.random.default_rng(0)
    X = rng.random((120, 2))
    f = np.sin(3 * X[:, 0]) + X[:, 1]
    sd = np.where(np.arange(120) % 2, 1.5, 0.02)
    y = f + sd * rng.standard_normal(120)
    errors = {}
    for told in (False, True):
        opt = ma.Optimizer(X, seed=1)
        opt.tell(list(range(120)), y, noise=[1.5 if s > 1 else None for s in sd] if told else None)
        errors[told] = np.sqrt(np.mean(np.square(opt.predict(list(range(120))).mean - f)))
        if told:
            assert opt.noise < 0.2
        else:
            assert opt.noise > 0.4
        opt.tell([0, 1], [f[0], f[1]], noise=0.01)
        opt.add(X[:2] + 2.0)
        opt.ask(2)
    assert errors[True] < 0.5 * errors[False]


def test_a_value_told_to_be_exact_is_believed():
    X = np.linspace(0, 1, 40)[:, None]
    opt = ma.Optimizer(X, noise=1.0)
    opt.tell(list(range(40)), np.zeros(40))
    opt.tell([20], [3.0], noise=0.0)
    assert opt.predict([20]).mean[0] == pytest.approx(3.0, abs=0.3)


@pytest.mark.parametrize("noise", [-1.0, [0.1], [0.1, float("nan")], [0.1, "much"], [0.1, -2.0]])
def test_wrong_noise_is_said_and_changes_nothing(noise):
    opt = ma.Optimizer(np.linspace(0, 1, 9)[:, None])
    with pytest.raises(ObservationError):
        opt.tell([0, 1], [0.0, 1.0], noise=noise)
    assert opt.history == []


def full_bkb(arms, kernel, **options):
    """BKB whose sketch leaves nothing out, so that the order of observations does not matter."""
    return ma.BKB(arms, kernel, rule=ma.Inserted(tolerance=0.0), **options)


def gaussian(rng, n):
    return rng.standard_normal(n)


def bounded(rng, n):
    return np.sqrt(3) * rng.uniform(-1, 1, n)


def signs(rng, n):
    return rng.choice([-1.0, 1.0], n)


@pytest.mark.slow
@pytest.mark.parametrize("draw", [gaussian, bounded, signs])
@pytest.mark.parametrize("make", [ma.BKB, ma.GPUCB])
@pytest.mark.parametrize("repeats", [1, 4], ids=["residuals", "replicates"])
def test_the_noise_is_estimated_from_above_and_found(draw, make, repeats):
    """Arms pulled at random: the estimate is an upper bound in nearly every run, and comes within a factor of 1.5."""
    above, noise, lasts = 0, 0.2, []
    for seed in range(8):
        rng = np.random.default_rng([seed, 1])
        arms = rng.random((60, 1))
        f = np.sin(6 * arms[:, 0])
        bandit = EstimatedNoise(
            lambda sd, at=arms: make(at, RBF(0.3), regularization=sd**2),  # type: ignore[misc]
            noise=3.0,
        )
        estimates = []
        for _ in range(12):
            chosen = np.repeat(rng.choice(60, 20 // repeats, replace=False), repeats)
            bandit.observe(chosen, f[chosen] + noise * draw(rng, len(chosen)))
            estimates.append(bandit.noise)
        above += min(estimates) > 0.95 * noise
        lasts.append(estimates[-1])
    assert above >= 7
    assert np.median(lasts) < 1.5 * noise
    assert len(set(estimates)) <= 1 + 2 * np.log2(3.0 / noise)


@pytest.mark.slow
@pytest.mark.parametrize("repeats", [1, 2])
@pytest.mark.parametrize("by_choice", [False, True], ids=["random arms", "chosen arms"])
def test_the_noise_is_below_the_truth_in_few_runs(by_choice, repeats):
    """δ = 5 %: at most 3 of 60 runs have an estimate below the truth, at any of 40 steps."""
    noise, below, lasts = 0.2, 0, []
    for seed in range(60):
        rng = np.random.default_rng([seed, 7])
        arms = rng.random((60, 1))
        f = np.sin(6 * arms[:, 0])

        def make(sd, arms=arms):
            return ma.GPUCB(arms, RBF(0.3), regularization=sd**2)

        bandit = EstimatedNoise(make, noise=3.0)
        least = np.inf
        for _ in range(40):
            n = 4 // repeats
            chosen = bandit.choose(n) if by_choice else rng.choice(60, n, replace=False)
            chosen = np.repeat(chosen, repeats)
            bandit.observe(chosen, f[chosen] + noise * rng.standard_normal(4))
            least = min(least, bandit.noise)
        below += least < noise
        lasts.append(bandit.noise)
    assert below <= 3
    assert np.median(lasts) < 2 * noise


def test_replicates_of_arms_that_were_selected_by_their_rewards():
    """An arm is pulled again where its first reward was close to the truth.

    The old means are then no fair draws. Nothing is learned of one arm from another, so that only
    replicates tell of the noise.
    """
    rng = np.random.default_rng(0)
    arms = np.arange(600.0)[:, None]
    bandit = EstimatedNoise(lambda sd: ma.GPUCB(arms, RBF(0.01), regularization=sd**2), noise=3.0)
    for block in np.array_split(np.arange(600), 30):
        first = rng.standard_normal(len(block))
        bandit.observe(block, first)
        close = block[np.abs(first) < 0.5]
        bandit.observe(close, rng.standard_normal(len(close)))
        assert bandit.noise >= 1.0
    assert bandit.noise < 2.0


@pytest.mark.parametrize(
    "weights",
    [np.ones(3), np.ones(40), np.tile([0.5, 0.9], 20), np.linspace(0.01, 1, 30)],
)
@pytest.mark.parametrize("delta", [0.3, 0.05, 0.001])
def test_the_lower_quantile_of_a_weighted_sum_of_squares(weights, delta):
    rng = np.random.default_rng(0)
    drawn = np.square(rng.standard_normal((40_000, len(weights)))) @ weights
    low = lower_quantile(np.array([weights.sum()]), delta)[0]
    assert np.mean(drawn <= low) <= delta
    assert low > 0
    assert lower_quantile(np.array([1.0]), 1e-300)[0] > 0


def test_a_policy_made_anew_knows_all_that_was_observed():
    rng = np.random.default_rng(0)
    arms = rng.random((50, 1))
    bandit = EstimatedNoise(lambda sd: ma.GPUCB(arms, RBF(0.3), regularization=sd**2), noise=2.0)
    told, heard = [], []
    for _ in range(60):
        chosen = bandit.choose(2)
        y = np.cos(5 * arms[chosen, 0]) + 0.1 * rng.standard_normal(2)
        bandit.observe(chosen, y)
        told, heard = [*told, *chosen], [*heard, *y]
    assert bandit.noise < 0.5
    fresh = ma.GPUCB(arms, RBF(0.3), regularization=bandit.noise**2)
    fresh.observe(told, heard)
    np.testing.assert_allclose(bandit.policy.scores().mean, fresh.scores().mean, atol=1e-8)
    assert bandit.policy.evidence.n_observations == 120
    means = np.bincount(told, heard, minlength=50) / np.maximum(np.bincount(told, minlength=50), 1)
    assert bandit._state.told.within == pytest.approx(
        np.sum(np.square(np.array(heard) - means[told]))
    )
    with pytest.raises(ObservationError):
        bandit.observe([0], [np.inf])
    assert bandit.policy.evidence.n_observations == 120


@pytest.mark.parametrize("table", [False, True], ids=["without a table", "beside a table"])
@pytest.mark.parametrize("make", [full_bkb, ma.GPUCB])
def test_the_noise_of_arms_that_change_is_estimated(make, table):
    """Arms by value: equal rows are replicates, and a policy made anew knows them."""
    rng = np.random.default_rng(0)
    X = rng.random((40, 2))

    def made(sd):
        return make(
            X[:5] if table else None,
            RBF(0.5),
            n_features=None if table else 2,
            regularization=sd**2,
        )

    bandit, told, heard = EstimatedNoise(made, noise=2.0), [], []
    for _ in range(60):
        offers = rng.choice(40, 6, replace=False)
        chosen = np.repeat(offers[bandit.choose(arms=X[offers])], 2)
        y = np.cos(4 * X[chosen, 0]) + 0.1 * rng.standard_normal(2)
        bandit.observe(X[chosen], y)
        told, heard = [*told, *chosen], [*heard, *y]
    assert 0.1 < bandit.noise < 0.2
    fresh = made(bandit.noise)
    fresh.observe(X[told], heard)
    np.testing.assert_allclose(bandit.policy.predict(X).mean, fresh.predict(X).mean, atol=1e-6)
    means = np.bincount(told, heard, minlength=40) / np.maximum(np.bincount(told, minlength=40), 1)
    assert bandit._state.told.within == pytest.approx(
        np.sum(np.square(np.array(heard) - means[told]))
    )
    before = bandit._state
    bandit.observe(np.zeros((0, 2)), [])
    for arms, rewards, noise in (
        (X[:1, :1], [0.0], None),
        ([400], [0.0], None),
        (X[:1], [0.0], -1.0),
    ):
        with pytest.raises((ArmsError, ObservationError)):
            bandit.observe(arms, rewards, noise=noise)
    assert bandit._state is before


@pytest.mark.parametrize("make", [full_bkb, ma.GPUCB])
def test_noise_that_is_told_stays_as_it_is_while_that_of_the_others_is_estimated(make):
    rng = np.random.default_rng(1)
    arms = rng.random((40, 1))
    f = np.sin(5 * arms[:, 0])

    def made(sd):
        return make(arms, RBF(0.3), regularization=sd**2)

    bandit, calls = EstimatedNoise(made, noise=2.0), []
    bandit.observe(3, f[3] + 1.0, noise=1.0)
    assert bandit.noise == 2.0  # nothing is known of the others' noise
    for t in range(40):
        chosen, told = rng.choice(40, 4), 3.0 if t % 2 else None
        calls.append((chosen, f[chosen] + (told or 0.1) * rng.standard_normal(4), told))
        bandit.observe(*calls[-1][:2], noise=told)
    assert 0.1 < bandit.noise < 0.2
    fresh = made(bandit.noise)
    fresh.observe(3, f[3] + 1.0, noise=1.0)
    for chosen, y, told in calls:
        fresh.observe(chosen, y, noise=told)
    np.testing.assert_allclose(bandit.policy.counts, fresh.counts)
    np.testing.assert_allclose(bandit.policy.predict().mean, fresh.predict().mean, atol=1e-5)
    assert bandit.policy.evidence.n_observations == 161


@pytest.mark.parametrize(
    "make", [None, lambda sd: 3, lambda sd: _used()], ids=["nothing", "no policy", "a used one"]
)
def test_wrong_makers_are_typed_errors(make):
    with pytest.raises(ParameterError):
        EstimatedNoise(make, noise=1.0)


def _used():
    policy = ma.GPUCB(np.zeros((2, 1)), RBF(1.0))
    policy.observe([0], [0.0])
    return policy


@pytest.mark.parametrize("make", [ma.BKB, ma.GPUCB])
def test_without_noise_arms_are_interpolated_and_not_pulled_again(make):
    """λ = 1e-8 k(x, x): until the best arm is known for sure every pull is of a new arm."""
    arms = np.linspace(0, 1, 300)[:, None]
    f = np.sin(9 * arms[:, 0]) * arms[:, 0]
    policy = make(arms, ma.kernels.Matern(0.2), regularization=1e-8)
    pulled = []
    for _ in range(25):
        chosen = int(policy.choose()[0])
        if chosen in pulled:
            assert f[chosen] == f[pulled].max()
            ucb = np.delete(policy.scores().ucb, chosen)
            assert ucb.max() <= f[chosen] + 1e-3
        pulled.append(chosen)
        policy.observe([chosen], [f[chosen]])
    mean, std = policy.predict()
    np.testing.assert_allclose(mean[pulled], f[pulled], atol=1e-4)
    assert std[pulled].max() < 2e-4
    assert f[policy.best] > f.max() - 1e-3


@pytest.mark.parametrize("kernel", [None, RBF(0.3)], ids=["learned", "given"])
def test_an_optimizer_of_exact_values(kernel):
    X = np.random.default_rng(0).random((200, 2))
    f = -np.square(X - 0.4).sum(axis=1)
    opt = ma.Optimizer(X, kernel=kernel, noise=0.0, repeats="never", seed=3)
    for _ in range(25):
        (i,) = opt.ask()
        opt.tell(i, f[i])
    assert len({trial.id for trial in opt.history}) == 25
    told = [trial.id for trial in opt.history]
    better = f[told] >= np.median(f[told])
    np.testing.assert_allclose(opt.predict(told).mean[better], f[told][better], atol=5e-3)
    assert f[opt.best().recommended.id] > np.quantile(f, 0.97)
    with pytest.raises(ParameterError):
        ma.Optimizer(X, noise=-1.0)
