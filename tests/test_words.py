"""What is said of the best candidate: forecasts and how they held, what is recommended and why, and
statements that are made only where the record supports them."""

import numpy as np
import pytest

import manyarms as ma

RNG = np.random.default_rng(0)
X = RNG.random((60, 2))
F = np.sin(5 * X[:, 0]) + X[:, 1] ** 2
X.setflags(write=False)
F.setflags(write=False)


def grown(optimizer, n, noise=0.0, seed=0):
    """After n more results, asked for one by one."""
    rng = np.random.default_rng(seed)
    for _ in range(n):
        (i,) = optimizer.ask()
        optimizer.tell(i, F[i] + noise * rng.standard_normal())
    return optimizer


class TestForecasts:
    def test_every_suggestion_of_the_model_has_one(self):
        found = ma.Optimizer(X, seed=1)
        grown(found, 8)
        assert [trial.forecast for trial in found.history] == [None] * 8
        (i,) = found.ask()
        predicted = found.predict([i])
        found.tell(i, F[i])
        forecast = found.history[-1].forecast
        assert forecast.mean == pytest.approx(predicted.mean[0])
        # The interval is that of a result: wider than that of the true value by the noise.
        assert forecast.low < predicted.low[0]
        assert forecast.high > predicted.high[0]

    def test_results_told_unasked_have_none(self):
        found = ma.Optimizer(X, seed=1)
        found.tell(np.arange(10), F[:10])
        asked = found.ask(2)
        other = next(i for i in range(10, 60) if i not in asked)
        found.tell(other, F[other])
        found.release(asked[1])
        found.tell(asked, F[asked])
        assert [trial.forecast is None for trial in found.history[10:]] == [True, False, True]

    def test_with_kernel_and_noise_given_there_are_some_from_the_first(self):
        found = ma.Optimizer(X, kernel=ma.kernels.RBF(0.3), noise=0.1, seed=1)
        grown(found, 1)
        forecast = found.history[0].forecast
        assert forecast.mean == pytest.approx(0.0, abs=1e-9)
        assert forecast.high == pytest.approx(1.96 * np.sqrt(1.01))

    def test_minimising_turns_them_round(self):
        high = grown(ma.Optimizer(X, seed=1), 10)
        low = ma.Optimizer(X, direction="minimize", seed=1)
        for trial in high.history:
            assert low.ask() == [trial.id]
            low.tell(trial.id, -trial.value)
        for one, other in zip(high.history[8:], low.history[8:], strict=True):
            assert one.forecast == pytest.approx([-other.forecast[i] for i in (0, 2, 1)])

    def test_a_study_writes_them_down(self, tmp_path):
        study = ma.Study.create(tmp_path / "s.db", X, seed=1)
        grown(study, 10)
        asked = study.ask(3)
        study.tell(asked[0], F[asked[0]])
        expected = grown(ma.Optimizer(X, seed=1), 10).history
        with ma.Study.open(tmp_path / "s.db") as other:
            assert other.history == study.history
            assert other.history[:10] == expected
            assert other.history[10].forecast is not None
            other.tell(asked[1:], F[asked[1:]])
            assert all(trial.forecast for trial in other.history[8:])

    def test_a_renewed_lease_keeps_them(self, tmp_path):
        study = ma.Study.create(tmp_path / "s.db", X, seed=1, lease=100.0)
        grown(study, 8)
        (i,) = study.ask()
        study.renew()
        study.tell(i, F[i])
        assert study.history[-1].forecast is not None

    def test_a_box_has_them_too(self):
        found = ma.Optimizer(ma.Box([(0.0, 1.0), (0.0, 1.0)]), seed=0)
        for _ in range(10):
            (point,) = found.ask()
            found.tell([point], [np.sin(5 * point[0]) + point[1]])
        assert [trial.forecast is None for trial in found.history] == [True] * 8 + [False] * 2
