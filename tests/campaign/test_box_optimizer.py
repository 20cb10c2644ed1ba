"""Ask and tell over a box: what `Optimizer` does for pools, with points for ids."""

import itertools
import pickle
from copy import copy
from dataclasses import replace

import numpy as np
import pytest

import manyarms as ma
from manyarms.campaign.proposing import chooser
from manyarms.errors import ArmsError, ObservationError, ParameterError, StateError

MIXED = {"lr": (1e-4, 1e-1, "log"), "units": (8, 512), "act": ["relu", "tanh", "gelu"]}


def parabola(x):
    return 10 * (x[0] - 0.7) ** 2 + (x[1] + 2) ** 2 / 5


def loss(point):
    return (
        abs(np.log10(point["lr"]) + 2)
        + abs(point["units"] - 128) / 128
        + {"relu": 0.5, "tanh": 0.0, "gelu": 1.0}[point["act"]]
    )


def run(box, f, n, **options):
    optimizer, rng = (
        ma.Optimizer(box, direction="minimize", **{"seed": 0, **options}),
        np.random.default_rng(0),
    )
    for _ in range(n):
        (point,) = optimizer.ask()
        optimizer.tell(point, f(point) + 0.01 * rng.standard_normal())
    return optimizer


@pytest.fixture(scope="module")
def plain():
    return run(ma.Box([[0, 1], [-5, 5]]), parabola, 35)


@pytest.fixture(scope="module")
def mixed():
    return run(ma.Box(**MIXED), loss, 45)


def test_it_finds_the_minimum(plain):
    best = plain.best().recommended
    assert isinstance(best.id, tuple)
    assert parabola(best.id) < 0.05
    assert best.low < best.mean < best.high
    assert plain.noise < 0.1
    assert len(plain.history) == 35
    assert not plain.pending
    assert plain.size.n_results == 35
    assert set(plain.importance) == {"x0", "x1"}


def test_it_finds_the_minimum_of_a_mixed_box(mixed):
    best = mixed.best().recommended.id
    assert best["act"] == "tanh"
    assert loss(best) < 0.3
    assert all(isinstance(trial.id["units"], int) for trial in mixed.history)
    assert {"lr", "units", "act"} == set(mixed.importance)


def test_the_same_seed_asks_for_the_same_points(plain):
    again = run(ma.Box([[0, 1], [-5, 5]]), parabola, 12)
    assert [trial.id for trial in again.history] == [trial.id for trial in plain.history[:12]]
    other = run(ma.Box([[0, 1], [-5, 5]]), parabola, 2, seed=1)
    assert other.history[0].id != again.history[0].id


def test_predictions_are_of_any_point(plain):
    known = len(plain.pool)
    prediction = plain.predict([(0.7, -2.0), (0.0, 5.0)])
    assert len(plain.pool) == known
    assert prediction.mean[0] == pytest.approx(0.0, abs=0.2)
    assert prediction.mean[1] > 1.5
    assert (prediction.low < prediction.mean).all()
    assert (prediction.mean < prediction.high).all()
    assert plain.predict((0.7, -2.0)).ids == [(0.7, -2.0)]
    assert [candidate.mean for candidate in plain.top(3)] == sorted(
        candidate.mean for candidate in plain.top(3)
    )


def test_a_certificate_is_heuristic(plain):
    certificate = plain.certificate(tolerance=100.0)
    assert certificate.probability is None
    assert certificate.id == plain.best().recommended.id
    assert certificate.rival != certificate.id
    assert certificate.regret_bound >= 0
    assert certificate.reached


def test_batches_pending_and_release(mixed):
    twin = copy(mixed)
    batch = twin.ask(3)
    assert len({tuple(point.values()) for point in batch}) == 3
    assert twin.pending == batch
    assert not mixed.pending
    twin.release(batch[0])
    twin.tell(batch[1], 1.0)
    assert twin.pending == [batch[2]]
    with pytest.raises(StateError):
        twin.release(batch[0])


def test_a_batch_holds_different_points():
    """Where the maximum is a corner that is as good as known, and over a box of few points."""
    optimizer = ma.Optimizer(ma.Box([[0, 1]] * 3), seed=0)
    start = optimizer.ask(20)
    optimizer.tell(start, [sum(point) for point in start])
    batch = optimizer.ask(12)
    assert len(set(batch)) == 12
    assert batch[0] == (1.0, 1.0, 1.0)
    few = ma.Optimizer(ma.Box(a=["x", "y"], n=(0, 2)), seed=0)
    assert len({tuple(point.values()) for point in few.ask(6)}) == 6
    assert len(few.ask(2)) == 2  # all are pending: again, rather than none


@pytest.mark.parametrize("scale", [1e-300, 1e-90, 1e90])
def test_values_of_any_size(scale):
    optimizer = ma.Optimizer(ma.Box([[0, 1]] * 2), seed=0)
    for _ in range(12):
        (point,) = optimizer.ask()
        optimizer.tell(point, scale * sum(point))
    assert np.isfinite(optimizer.best().recommended.mean)


def impatient(optimizer):
    """The same, which takes 12 results without progress for a stall."""
    state = optimizer._state
    schedule = replace(state.model.settings.schedule, patience=12)
    settings = replace(state.model.settings, schedule=schedule)
    optimizer._state = replace(state, model=replace(state.model, settings=settings))
    return optimizer


@pytest.mark.slow
def test_a_run_that_stalls_searches_elsewhere_for_a_while():
    """By a model that knows nothing of the results before; the first one knows them all, and goes on after it."""
    optimizer, searches = impatient(ma.Optimizer(ma.Box([[0, 1]] * 2), seed=0)), []
    for n in range(1, 101):
        (point,) = optimizer.ask()
        optimizer.tell(point, -((point[0] - 0.3) ** 2) - (point[1] - 0.6) ** 2)
        model, chooses = optimizer._state.model, chooser(optimizer._state)
        assert model.n_results == n
        searches.append(model.elsewhere)
        if model.elsewhere is None:
            assert chooses is model
        else:
            assert chooses.n_results == n - model.plan.elsewhere
    began = [i for i in range(1, 100) if searches[i] and not searches[i - 1]]
    ended = [i for i in range(1, 100) if searches[i - 1] and not searches[i]]
    assert began
    assert len(began) - len(ended) in (0, 1)
    assert all(later - end >= 12 for end, later in zip(ended, began[1:], strict=False))
    rows = np.array([trial.id for trial in optimizer.history])
    assert np.ptp(rows[began[0] + 1 : began[0] + 9], axis=0).min() > 0.3  # a random start
    assert np.abs(np.subtract(optimizer.best().recommended.id, (0.3, 0.6))).max() < 0.02


def test_a_search_elsewhere_does_not_learn_what_was_pending_when_it_began():
    optimizer = impatient(ma.Optimizer(ma.Box([[0, 1]]), seed=0))
    late = optimizer.ask(2)
    while optimizer._state.model.elsewhere is None:
        optimizer.tell(optimizer.ask(), 0.0)
    n = len(optimizer.history)
    optimizer.tell(late, [1.0, 2.0])
    optimizer.tell(optimizer.ask(), 3.0)
    model = optimizer._state.model
    assert (model.n_results, chooser(optimizer._state).n_results) == (n + 3, 1)


def test_results_that_were_not_asked_for_do_not_stall_a_run():
    optimizer = impatient(ma.Optimizer(ma.Box([[0, 1]]), seed=0))
    optimizer.tell(np.linspace(0, 1, 50)[:, None], -np.linspace(0, 1, 50))
    assert optimizer._state.model.elsewhere is None
    kernel = ma.kernels.RBF(0.3)
    given = impatient(ma.Optimizer(ma.Box([[0, 1]]), kernel=kernel, noise=0.1, seed=0))
    # What a theorem may cover searches nowhere else.
    for _ in range(30):
        given.tell(given.ask(), 0.0)
    assert given._state.model.elsewhere is None


def test_any_point_can_be_told_and_replicates_are_one_arm():
    optimizer = ma.Optimizer(ma.Box([[0, 1]]), seed=0)
    optimizer.tell([(0.25,), (0.25,), (0.5,)], [1.0, 2.0, 3.0])
    assert len(optimizer.policy.rows) == 2
    assert optimizer.best().recommended.id == (0.5,)
    assert optimizer.best().recommended.n_results == 1
    optimizer.tell(np.array([0.75]), 2.5)
    assert optimizer.history[-1].id == (0.75,)


def test_a_failed_point_is_left_alone():
    optimizer, box = ma.Optimizer(ma.Box([[0, 1], [0, 1]]), seed=0), ma.Box([[0, 1], [0, 1]])
    asked = []
    for _ in range(25):
        (point,) = optimizer.ask()
        asked.append(point)
        if point[0] > 0.5:
            optimizer.tell(point, ma.FAILED)
        else:
            optimizer.tell(point, point[0] - (point[1] - 0.5) ** 2)
    failed = [trial.id for trial in optimizer.history if trial.failed]
    assert failed
    assert len(set(failed)) == len(failed)
    assert len(optimizer.policy.rows) == 25 - len(failed)
    rows = box.encode(asked)
    assert np.unique(rows, axis=0).shape == rows.shape
    best = optimizer.best().recommended.id
    assert 0.35 < best[0] <= 0.5


def bowl(point):
    return sum((np.array(point) - (0.3, 0.6, 0.45)) ** 2)


def searched(fails, n, seed=0):
    """A search of the bowl in which a trial fails where `fails` says so of its number and point."""
    optimizer = ma.Optimizer(ma.Box([[0, 1]] * 3), direction="minimize", seed=seed)
    for number in range(n):
        (point,) = optimizer.ask()
        optimizer.tell([point], [ma.FAILED if fails(number, point) else bowl(point)])
    values = [trial.value for trial in optimizer.history if not trial.failed]
    return min(values), n - len(values)


def test_failures_at_random_do_not_lead_a_search_astray():
    failing = np.random.default_rng([0, 7]).random(80) < 0.15
    assert failing.sum() == 13
    best, _ = searched(lambda number, point: failing[number], 80)
    assert best < 1e-6


def test_a_region_that_fails_is_left_alone():
    best, n_failed = searched(lambda number, point: point[0] < 0.2, 40)
    assert best < 1e-6
    assert n_failed <= 5
    # The model is sure that the best point is beyond the border.
    runs = [searched(lambda number, point: point[0] < 0.5, 60, seed) for seed in range(3)]
    best, n_failed = np.transpose(runs)
    assert best.max() < 0.04 + 0.02
    assert n_failed.mean() <= 32


def test_what_a_failure_counts_as():
    """Beside values what is expected there, far from them its lower bound, among failures the
    worst."""
    optimizer = ma.Optimizer(ma.Box([[0, 1]] * 2), direction="minimize", seed=0)
    near = np.array([(0.2 + x / 20, 0.2 + y / 20) for x in range(5) for y in range(5)])
    rows = [*near, (0.9, 0.1)]
    optimizer.tell(rows, [*((near - 0.3) ** 2).sum(axis=1), 5.0])

    def supposed(points):
        """What the model expects of the points, and what it does where it chooses."""
        state = optimizer._state
        assert state.model.elsewhere is None
        mean, std = state.model.policy.predict(points)
        return chooser(state).policy.predict(points).mean, mean, std

    values = [-trial.value for trial in optimizer.history]
    worst = optimizer._state.model.warp.reward(np.array(values)).min()
    beside, far = (0.31, 0.31), (0.6, 0.95)
    optimizer.tell([beside, far], failed=True)
    now, mean, std = supposed([beside, far])
    assert abs(now[0] - mean[0]) < 0.1
    assert now[1] == pytest.approx(max(mean[1] - 2 * std[1], worst), abs=0.01)
    assert now[1] < mean[1] - 0.5
    region = [(0.375, 0.375), (0.374, 0.374), (0.374, 0.376), (0.376, 0.374), (0.376, 0.376)]
    optimizer.tell(region[:4], failed=True)
    now, mean, _ = supposed(region)
    np.testing.assert_allclose(now, mean, atol=0.1)
    optimizer.tell(region[4], failed=True)
    now, _, _ = supposed(region)
    assert (now < mean - 3).all()


def test_repeats():
    box = ma.Box(a=["x", "y"], n=(0, 2))
    optimizer = ma.Optimizer(box, repeats="never", seed=0)
    for _ in range(6):
        (point,) = optimizer.ask()
        optimizer.tell(point, float(point["n"]))
    assert len({tuple(trial.id.values()) for trial in optimizer.history}) == 6
    with pytest.raises(StateError):
        optimizer.ask()
    with pytest.raises(ObservationError):
        optimizer.tell({"a": "x", "n": 1}, 0.0)


def test_points_that_a_user_changes_are_the_users_own():
    optimizer = ma.Optimizer(ma.Box(x=(0.0, 1.0), y=["a", "b"]), seed=0)
    for _ in range(10):
        (point,) = optimizer.ask()
        optimizer.tell([dict(point)], point["x"])
        point["x"] = 7.0
    optimizer.ask(2)
    told = [dict(trial.id) for trial in optimizer.history]
    for taken in (
        optimizer.best().recommended.id,
        optimizer.history[0].id,
        optimizer.pending[0],
        optimizer.top(2)[1].id,
    ):
        taken["z"] = 1
        del taken["x"]
    assert [trial.id for trial in optimizer.history] == told
    optimizer.tell([optimizer.pending[0]], 0.5)
    assert optimizer.best().recommended.id in told

    def careless(point):
        point["x"] /= 10
        return point.pop("x")

    found = ma.maximize(careless, optimizer.box, budget=9, seed=0, progress=False)
    assert all(trial.value == trial.id["x"] / 10 for trial in found.history)


@pytest.mark.slow
@pytest.mark.parametrize("left", [1, 3])
def test_every_point_of_a_finite_box_is_found(left):
    box, rng = ma.Box(a=(0, 19), b=(1, 15, "log"), c=["x", "y"]), np.random.default_rng(0)
    rows = rng.permutation(box.grid(600))
    assert len(rows) == 600
    assert box.grid(599) is None
    assert ma.Box(a=(0.0, 1.0)).grid(10**9) is None
    optimizer = ma.Optimizer(box, repeats="never", seed=1)
    told = box.decode(rows[left:])
    optimizer.tell(told, [point["a"] for point in told])
    asked = optimizer.ask(left + 5)  # fewer are left
    assert sorted(map(str, asked)) == sorted(map(str, box.decode(rows[:left])))
    with pytest.raises(StateError, match="nothing is left"):
        optimizer.ask()
    few = ma.Optimizer(ma.Box(a=[1, 2, 3]), repeats="never")
    assert sorted(point["a"] for point in few.ask(5)) == [1, 2, 3]


def test_a_radius_that_cannot_be_had_is_refused_before_anything_is_tried():
    with pytest.raises(ParameterError, match="finitely many"):
        ma.Optimizer(ma.Box([[0, 1]]), confidence=ma.Bayes())
    with pytest.raises(ParameterError, match="noise"):
        ma.Optimizer(
            ma.Box([[0, 1]]), kernel=ma.kernels.RBF(0.3), noise=0.1, confidence=ma.LogDet(1.0, 0.2)
        )


def test_an_optimizer_of_a_box_can_be_sent_to_another_process(plain):
    twin = pickle.loads(pickle.dumps(plain))
    assert twin.ask(2) == copy(plain).ask(2)


def test_a_certificate_says_how_accurate_the_sketch_is():
    options = {"kernel": ma.kernels.RBF(0.2), "noise": 0.5, "confidence": ma.Constant(2.0)}
    rng = np.random.default_rng(0)
    optimizer = ma.Optimizer(ma.Box([[0, 1]] * 2), rule=ma.Inserted(0.3), **options)
    seen = rng.random((200, 2))
    for X in seen.reshape(10, 20, 2):
        optimizer.tell(X.tolist(), np.sin(5 * X[:, 0]))
    policy, at = optimizer.policy, rng.random((50, 2))
    assert len(policy.inducing) < 200
    theta = optimizer.certificate().sketch_error
    assert theta > 0.01
    kernel, variance = policy.kernel, policy.regularization
    K, k = kernel(seen, seen) + variance * np.eye(200), kernel(seen, at)
    exact = 1 - (k * np.linalg.solve(K, k)).sum(axis=0)
    ratio = policy.predict(at).std ** 2 / exact
    assert 1 / (1 + theta) <= ratio.min()
    assert ratio.max() <= 1 + theta


@pytest.mark.slow
def test_kernels_are_looked_for_everywhere_now_and_then():
    optimizer = ma.Optimizer(ma.Box([[0, 1], [-5, 5]]), direction="minimize", seed=0)
    models = []
    for _ in range(60):
        (point,) = optimizer.ask()
        optimizer.tell(point, parabola(point))
        models.append(optimizer._state.model)
    numbers = sorted({model.plan.fitted for model in models})
    everywhere = sorted({model.plan.thorough for model in models})
    assert set(everywhere) < set(numbers)
    assert all(later <= 1.05 * n + 1 for n, later in itertools.pairwise(numbers))
    assert all(later <= 1.2 * n + 2 for n, later in itertools.pairwise(everywhere))


def test_errors_change_nothing(plain):
    before = plain._state
    for ids, values, error in (
        ((2.0, 0.0), 1.0, ArmsError),
        ((0.5,), 1.0, ArmsError),
        ([(0.5, 0.5), (0.5, 9.0)], [1.0, 2.0], ArmsError),
        ((0.5, 0.5), np.nan, ObservationError),
        ((0.5, 0.5), [1.0, 2.0], ObservationError),
        ({"x0": 0.5, "x1": 0.5}, 1.0, ArmsError),
    ):
        with pytest.raises(error):
            plain.tell(ids, values)
    with pytest.raises(ParameterError):
        plain.add([[0.5, 0.5]])
    with pytest.raises(ParameterError):
        plain.retire([(0.5, 0.5)])
    assert plain._state is before


def test_a_maximiser_that_leaves_the_box_changes_nothing():
    optimizer = ma.Optimizer(ma.Box([[0, 1]]), maximiser=lambda u, box, rng: [2.0], seed=0)
    optimizer.tell([(i / 10,) for i in range(10)], np.arange(10.0))
    before = optimizer._state
    with pytest.raises(ArmsError, match="maximiser"):
        optimizer.ask()
    assert optimizer._state is before


def test_a_given_kernel_and_noise_are_not_learned():
    box = ma.Box([[0, 1]])
    optimizer = ma.Optimizer(
        box, kernel=ma.kernels.RBF(0.3), noise=0.1, confidence=ma.Certified(2.0, 0.1), seed=0
    )
    for _ in range(6):
        (point,) = optimizer.ask()
        optimizer.tell(point, np.sin(5 * point[0]))
    policy = ma.domains.DomainBKB(box, ma.kernels.RBF(0.3), regularization=0.01)
    policy.observe(
        box.encode([trial.id for trial in optimizer.history]),
        [trial.value for trial in optimizer.history],
    )
    np.testing.assert_allclose(
        optimizer.predict([(0.4,)]).mean, policy.predict([[0.4]]).mean, atol=1e-6
    )
    certificate = optimizer.certificate()
    assert certificate.probability is None
    assert "box" in certificate.reason


def test_constant_values_and_one_point():
    optimizer = run(ma.Box(x=(0.0, 1.0)), lambda point: 0.0, 12)
    assert optimizer.best().recommended.mean == pytest.approx(0.0, abs=0.05)


def test_maximize_takes_a_box():
    def f(point):
        return -((point["x"] - 0.3) ** 2) + (point["kind"] == "b")

    found = ma.maximize(f, ma.Box(x=(0.0, 1.0), kind=["a", "b"]), budget=25, progress=False)
    assert found.ended == "budget"
    assert found.best.recommended.id["kind"] == "b"
    assert abs(found.best.recommended.id["x"] - 0.3) < 0.1
    row = ma.maximize(
        lambda x: float(x @ x),
        ma.Box([[-1, 1], [-1, 1]]),
        budget=12,
        direction="minimize",
        progress=False,
    )
    assert len(row.history) == 12
    assert isinstance(row.best.recommended.id, tuple)


@pytest.mark.slow
def test_noise_and_units_do_not_raise_each_other():
    """A unit has ten deviations of the noise, which is learned in units: pure noise must not make it grow without end."""
    optimizer, rng = ma.Optimizer(ma.Box(x=(0.0, 1.0)), seed=0), np.random.default_rng(1)
    values = rng.standard_normal(60)
    for point, value in zip(rng.random(60).tolist(), values, strict=True):
        optimizer.tell({"x": point}, value)
    assert 0.5 < 1 / optimizer._state.model.warp.slope < 1.5 * values.std()


@pytest.mark.slow
def test_ripples_do_not_pass_for_noise():
    """Ackley's function in four dimensions: a funnel under ripples, nearly flat far from its middle."""

    def f(point):
        x = np.array(point)
        return (
            20
            - 20 * np.exp(-0.2 * np.sqrt(np.mean(x**2)))
            + np.e
            - np.exp(np.mean(np.cos(2 * np.pi * x)))
        )

    box = ma.Box([[-32.768, 32.768]] * 4)
    found = [f(run(box, f, 100, seed=seed).best().recommended.id) for seed in range(3)]
    drawn = [f(point) for point in np.random.default_rng(1).uniform(-32.768, 32.768, (100, 4))]
    assert np.median(found) < 0.75 * min(drawn)
