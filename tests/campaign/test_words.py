"""What is said of the best candidate: forecasts and how they held, what is recommended and why, and
statements that are made only where the record supports them."""

import numpy as np
import pytest
from scipy.stats import t as student

import manyarms as ma
from manyarms.campaign.certificate import NEEDED, WINDOW, TrackRecord
from manyarms.errors import ParameterError

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


@pytest.mark.parametrize("n", [NEEDED, 37, WINDOW])
@pytest.mark.parametrize("n_others", [1, 100, 10**6, 10**12])
def test_the_width_is_the_quantile_of_student_for_all_others_at_once(n, n_others):
    width = TrackRecord(n, n, 1.0).width(n_others)
    assert width == pytest.approx(student.isf(0.1 / n_others, n), rel=1e-12)


class TestForecasts:
    def test_every_suggestion_of_the_model_has_one(self):
        found = ma.Optimizer(X, seed=1)
        grown(found, 4)
        assert [trial.forecast for trial in found.history] == [None] * 4
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


class TestBest:
    def test_noise_parts_what_was_measured_from_what_is_recommended(self):
        found = ma.Optimizer(X, noise=0.3, kernel=ma.kernels.RBF(0.3), seed=0)
        found.tell(np.arange(60), F)
        top = int(np.argmax(F))
        lucky = int(np.argmin(F))
        found.tell([top] * 20, F[top] + 0.01 * RNG.standard_normal(20))
        found.tell(lucky, F[lucky] + 8.0)
        best = found.best()
        assert best.measured.id == lucky
        assert best.measured.value == pytest.approx(F[lucky] + 4.0)
        assert best.measured.n_results == 2
        assert best.recommended.id == top
        assert best.recommended.n_results == 21
        assert f"{best.measured.value:.4g} from 2 results" in best.why
        assert f"{best.measured.mean:.4g} of it" in best.why
        assert found.certificate().id == top

    def test_they_are_often_the_same(self):
        best = grown(ma.Optimizer(X, seed=1), 30, noise=0.01).best()
        assert best.measured == best.recommended
        assert "agrees" in best.why

    @pytest.mark.parametrize("options", [{"noise": 0.0}, {"repeats": "never"}, {"repeats": 1}])
    @pytest.mark.parametrize("direction", ["maximize", "minimize"])
    def test_exact_values_need_no_model(self, options, direction):
        found = grown(ma.Optimizer(X, direction=direction, seed=1, **options), 20)
        values = {trial.id: trial.value for trial in found.history}
        pick = max if direction == "maximize" else min
        best = found.best()
        assert best.measured == best.recommended
        assert best.measured.id == pick(values, key=values.__getitem__)
        assert best.measured.mean == best.measured.low == best.measured.high == best.measured.value
        certificate = found.certificate()
        assert certificate.low == certificate.high == certificate.estimate == best.measured.value
        assert certificate.rival not in values

    def test_values_told_with_a_noise_are_not_exact(self):
        found = ma.Optimizer(X, repeats="never", seed=1)
        found.tell(np.arange(20), F[:20], noise=0.1)
        best = found.best()
        assert best.recommended.low < best.recommended.mean < best.recommended.high
        assert "exact" not in best.why

    def test_a_noise_that_is_given_counts_where_each_is_asked_for_once(self):
        found = grown(ma.Optimizer(X, repeats="never", noise=0.2, seed=1), 20, noise=0.2)
        assert found.noise == pytest.approx(0.2)
        assert found.best().recommended.low < found.best().recommended.high

    def test_with_a_kernel_each_asked_for_once_the_scale_is_still_learned(self):
        found = grown(ma.Optimizer(X, kernel=ma.kernels.RBF(0.3), repeats="never", seed=1), 20)
        assert found._state.model.fitted is not None
        assert "learned" in found.certificate().reason

    def test_retired_and_failed_ones_are_neither(self):
        found = ma.Optimizer(X, repeats=2, seed=0)
        found.tell(np.arange(20), F[:20])
        first = found.best().measured.id
        found.retire(first)
        second = found.best().measured.id
        assert second != first
        found.tell(second, failed=True)
        assert found.best().measured.id not in (first, second)

    def test_a_study_and_a_run_say_the_same(self, tmp_path):
        found = grown(ma.Optimizer(X, seed=1), 12)
        study = grown(ma.Study.create(tmp_path / "s.db", X, seed=1), 12)
        assert study.best() == found.best()
        made = ma.maximize(lambda row: float(row[0]), X, budget=10, progress=False)
        assert made.best == made.optimizer.best()


class TestStatements:
    def test_none_is_made_while_the_record_is_short(self):
        found = ma.Optimizer(X, seed=1)
        found.tell(np.arange(40), F[:40])  # told unasked: nothing was predicted
        certificate = found.certificate(tolerance=1e6)
        assert certificate.regret_bound is None
        assert certificate.level is None
        assert certificate.reached is False
        assert "has not been tested enough yet" in str(certificate)
        assert "there are 0." in str(certificate)
        assert "not reached yet" in str(certificate)

    def test_one_is_made_once_twenty_predictions_of_new_candidates_were_tested(self):
        found = ma.Optimizer(X, noise=0.02, repeats=1, seed=1)
        for n in range(1, 33):
            grown(found, 1, noise=0.02, seed=n)
            certificate = found.certificate(tolerance=1e6)
            assert certificate.record.n == max(0, n - 4)
            assert (certificate.regret_bound is None) == (n < 24)
            assert certificate.reached == (n >= 24)
        assert certificate.level == 0.9
        assert certificate.probability is None
        text = str(certificate)
        assert (
            "The model expects that among candidates like those tried no other is better by" in text
        )
        assert "It cannot know of candidates that are unlike all of them." in text
        record = certificate.record
        assert f"{record.n_inside} of {record.n} results fell inside the 95 % interval" in text
        assert F.max() - F[certificate.id] <= certificate.regret_bound

    def test_another_result_of_a_candidate_does_not_count(self):
        found = ma.Optimizer(X[:14], seed=1)
        for _ in range(40):
            (i,) = found.ask()
            found.tell(i, F[i] + 0.1 * RNG.standard_normal())
            has_untried = len({trial.id for trial in found.history}) < 14
            certificate = found.certificate()
            if has_untried:
                assert certificate.record.n <= 10
                assert certificate.regret_bound is None

    def test_once_all_have_a_value_all_results_count(self):
        found = ma.Optimizer(X[:12], seed=1)
        found.tell(np.arange(12), F[:12])
        grown(found, 19, noise=0.1)
        assert found.certificate().record.n == 19
        assert found.certificate().regret_bound is None
        grown(found, 1, noise=0.1)
        assert found.certificate().regret_bound is not None
        found.add(X[12:14])
        assert found.certificate().regret_bound is None

    def test_the_record_is_that_of_the_formula(self):
        found = grown(ma.Optimizer(X, noise=0.05, repeats=1, seed=3), 40, noise=0.05)
        scored = [trial for trial in found.history if trial.forecast]
        above = [
            1.96 * (t.value - t.forecast.mean) / (t.forecast.high - t.forecast.mean) for t in scored
        ]
        inside = sum(t.forecast.low <= t.value <= t.forecast.high for t in scored)
        record = found.certificate().record
        assert (record.n, record.n_inside) == (36, inside)
        expected = np.sqrt(2 * np.mean(np.maximum(above, 0) ** 2))
        assert record.scale == pytest.approx(max(1.0, expected))
        assert record.width(1000) == pytest.approx(record.scale * student.isf(0.1 / 1000, 36))

    def test_results_above_their_forecasts_widen_it_and_those_below_do_not(self):
        forecasts = np.tile([0.0, -1.96, 1.96], (40, 1))
        calm = TrackRecord.of(np.tile([1.0, -1.0], 20), forecasts, 1.0)
        high = TrackRecord.of(np.tile([3.0, -1.0], 20), forecasts, 1.0)
        low = TrackRecord.of(np.tile([1.0, -3.0], 20), forecasts, 1.0)
        assert calm.scale == low.scale == 1.0
        assert high.scale == pytest.approx(3.0)
        assert (calm.n_inside, high.n_inside, low.n_inside) == (40, 20, 20)
        assert TrackRecord.of(np.tile([1.0, -3.0], 20), forecasts, -1.0) == high

    def test_only_the_last_hundred_count(self):
        forecasts = np.tile([0.0, -1.96, 1.96], (150, 1))
        values = np.concatenate([np.full(50, 9.0), np.zeros(100)])
        record = TrackRecord.of(values, forecasts, 1.0)
        assert (record.n, record.n_inside, record.scale) == (100, 100, 1.0)
        assert "100 of the last 100 results" in str(record)

    def test_a_theorem_needs_no_record(self):
        radius = ma.Certified(2.0, 0.1, delta=0.2)
        options = {"kernel": ma.kernels.RBF(0.3), "noise": 0.1, "confidence": radius}
        found = ma.Optimizer(X, **options)
        found.tell(np.arange(12), F[:12])
        certificate = found.certificate(tolerance=1e6)
        assert certificate.record.n == 0
        assert certificate.regret_bound is not None
        assert certificate.reached
        assert certificate.probability == pytest.approx(0.8)
        assert certificate.level is None
        assert "This holds with probability at least 0.8" in str(certificate)
        assert "expects" not in str(certificate)

    def test_nothing_left_to_try_is_certain_where_values_are_exact(self):
        found = grown(ma.Optimizer(X[:12], repeats="never", seed=1), 12)
        certificate = found.certificate()
        assert certificate.regret_bound == 0
        assert certificate.probability == 1
        assert F[certificate.id] == F[:12].max()

    def test_every_process_sees_the_same_record(self, tmp_path):
        location = tmp_path / "s.db"
        study = ma.Study.create(location, X, noise=0.02, repeats=1, seed=1)
        grown(study, 15, noise=0.02)
        with ma.Study.open(location) as other:
            grown(other, 15, noise=0.02)
            expected = other.certificate()
            assert expected.regret_bound is not None
            assert study.certificate() == expected
        assert ma.Study.open(location).certificate() == expected

    def test_a_run_does_not_stop_before_it_is_earned(self):
        f = dict(zip(map(tuple, X.tolist()), F.tolist(), strict=True))
        found = ma.maximize(
            lambda row: f[tuple(row.tolist())], X, budget=60, tolerance=1e6, progress=False
        )
        at = [sum(t.forecast is not None for t in found.history[:n]) for n in range(61)]
        assert found.ended == "budget" or at[len(found.history)] >= 20
        assert len(found.history) >= 28


class TestBounds:
    @pytest.mark.parametrize("direction", ["maximize", "minimize"])
    def test_nothing_said_of_true_values_leaves_them(self, direction):
        value = np.clip(F, 0.2, 1.2)
        found = ma.Optimizer(X, direction=direction, bounds=(0.2, 1.2), repeats=2, seed=1)
        free = ma.Optimizer(X, direction=direction, repeats=2, seed=1)
        for _ in range(45):
            (i,) = found.ask()
            assert free.ask() == [i]  # what comes next does not depend on them
            found.tell(i, value[i])
            free.tell(i, value[i])
        inside = found.predict(np.arange(60))
        outside = free.predict(np.arange(60))
        assert outside.high.max() > 1.2 or outside.low.min() < 0.2
        np.testing.assert_array_equal(inside.std, outside.std)
        for name in ("mean", "low", "high"):
            expected = np.clip(getattr(outside, name), 0.2, 1.2)
            np.testing.assert_array_equal(getattr(inside, name), expected)
        certificate = found.certificate()
        assert 0.2 <= certificate.low <= certificate.estimate <= certificate.high <= 1.2
        assert certificate.regret_bound <= 1.0
        for each in (found.best().recommended, *found.top(5)):
            assert 0.2 <= each.low <= each.mean <= each.high <= 1.2

    def test_one_side_is_enough_and_values_told_may_lie_outside(self):
        found = ma.Optimizer(X, bounds=(0.0, None), seed=1)
        found.tell(np.arange(20), F[:20] - 1.0)
        assert found.predict(np.arange(60)).low.min() == 0.0

    def test_a_study_keeps_them(self, tmp_path):
        study = grown(ma.Study.create(tmp_path / "s.db", X, bounds=(0, 1), seed=1), 12)
        assert study.settings["bounds"] == [0, 1]
        with ma.Study.open(tmp_path / "s.db") as other:
            assert other.predict(np.arange(60)).high.max() <= 1
        made = ma.Study.create(tmp_path / "t.db", X, bounds=(None, 1.0))
        assert made.settings["bounds"] == [None, 1.0]

    @pytest.mark.parametrize(
        "bounds", [5, (1,), (1, 1), (2, 1), ("a", 2), (np.nan, 1), (0, np.inf), (True, 2), "ab"]
    )
    def test_wrong_ones_are_refused(self, bounds, tmp_path):
        with pytest.raises(ParameterError, match="bounds"):
            ma.Optimizer(X, bounds=bounds)
        with pytest.raises(ParameterError, match="bounds"):
            ma.Study.create(tmp_path / "s.db", X, bounds=bounds)
        assert not (tmp_path / "s.db").exists()
