"""Durable studies of a box: the same points as an optimizer asks for, whoever folds the log."""

import json
import math
import sqlite3
from dataclasses import replace

import numpy as np
import pytest

import manyarms as ma
from manyarms import plots
from manyarms.errors import (
    ArmsError,
    ObservationError,
    ParameterError,
    StateError,
    StudyDamagedError,
    UnknownArmError,
)
from manyarms.study.copies import exported, imported
from manyarms.study.salvage import salvage
from manyarms.study.spec import read_box, written_box

MIXED = {
    "temperature": (20.0, 120.0),
    "time": (1.0, 60.0, "log"),
    "stages": (1, 9),
    "solvent": ["water", "ethanol", "toluene"],
}
GIVEN = {"kernel": ma.kernels.Matern([0.3, 0.3, 0.3, 1.0]), "noise": 0.05}


def value(point):
    return (
        -((point["temperature"] - 60) ** 2) / 1000
        - math.log(point["time"] / 8) ** 2
        - abs(point["stages"] - 4) / 10
        + (point["solvent"] == "ethanol")
    )


def impatient(searcher):
    """The same, which takes 5 results without progress for a stall."""

    def hasty(settings):
        return replace(settings, schedule=replace(settings.schedule, patience=5))

    if isinstance(searcher, ma.Optimizer):
        state = searcher._state
        model = replace(state.model, settings=hasty(state.model.settings))
        searcher._state = replace(state, model=model)
    else:
        searcher._replica._settings = hasty(searcher._replica._settings)
    return searcher


def opened(path, every=5):
    study = impatient(ma.Study.open(path))
    study._replica.snapshot_every = every
    return study


def without_snapshot(path):
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM snapshots")
    connection.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "n"),
    [({}, 25), ({"direction": "minimize", "repeats": "never"}, 10), (GIVEN, 25)],
    ids=["learned", "minimize", "given"],
)
def test_a_study_asks_for_what_an_optimizer_asks_for_whoever_folds_the_log(path, options, n):
    """Bit by bit: with one process, with others that open it anew, with a snapshot and without."""
    box = ma.Box(**MIXED)
    options = {"seed": 3, "maximiser": ma.domains.MultiStart(32, 1, 5), **options}
    optimizer = impatient(ma.Optimizer(box, **options))
    ma.Study.create(path, box, **options).close()
    studies = [opened(path), opened(path)]
    rng = np.random.default_rng(0)
    n_searching = n_restored = 0
    for step in range(n):
        study = studies[step % 2]
        if step % 7 == 3:  # not asked for
            (point,) = box.decode(box.sample(1, rng))
            for each in (optimizer, study):
                each.tell(point, value(point))
        if step % 9 == 8:
            late = optimizer.ask(2)
            assert study.ask(2) == late
            for each in (optimizer, study):
                each.tell(late[0], failed=True)
                each.release(late[1])
        asked = optimizer.ask(1 + step % 2)
        assert study.ask(1 + step % 2) == asked
        told = [value(point) + 0.05 * rng.standard_normal() for point in asked]
        for each in (optimizer, study):
            each.tell(asked, told, noise=0.1 if step % 5 == 0 else None)
        n_searching += optimizer._state.model.elsewhere is not None
        if step % 8 == 7:
            studies[0].close()
            studies[0] = opened(path)
            n_restored += studies[0].snapshot_bytes > 0
        if step == 16:
            without_snapshot(path)
    assert n_searching > 3 or "noise" in options or n < 20
    assert n_restored
    last = opened(path)
    for study in (*studies, last):
        assert study.history == optimizer.history
        assert study.best() == optimizer.best()
        assert study.certificate() == optimizer.certificate()
        assert study.size == optimizer.size
    np.testing.assert_array_equal(last.policy.inducing, optimizer.policy.inducing)


def test_points_without_names_are_tuples(path):
    study = ma.Study.create(path, ma.Box([[0, 1], [-5, 5]]), seed=0)
    asked = study.ask(2)
    assert all(isinstance(point, tuple) for point in asked)
    study.tell(asked[0], 1.0, token="a")
    again = ma.Study.open(path)
    again.tell(asked[0], 1.0, token="a")  # known
    with pytest.raises(ObservationError, match="came before"):
        again.tell(asked[1], 1.0, token="a")
    again.tell(np.array([[0.5, 0.0], [0.5, 0.0]]), [2.0, 3.0])
    assert [trial.id for trial in again.history] == [asked[0], (0.5, 0.0), (0.5, 0.0)]
    assert again.pending == study.pending == [asked[1]]
    assert again.leases[0].id == asked[1]
    assert again.best().recommended.id == (0.5, 0.0)
    assert again.predict([(0.25, 1.0)]).ids == [(0.25, 1.0)]
    assert len(again.pool) == 3
    assert repr(again.box) == repr(study.pool.box)


def test_numbers_of_any_type_are_written_down(path):
    study = ma.Study.create(path, ma.Box(x=(0.0, 1.0), n=(0, 9), s=["a", "b"]), seed=0)
    study.tell({"x": np.float32(0.5), "n": np.int8(3), "s": np.str_("a")}, 1.0)
    study.tell({"s": "b", "x": 1, "n": 3.0}, 2.0)
    assert study.history == ma.Study.open(path).history
    assert study.history[1].id == {"x": 1, "n": 3, "s": "b"}


def test_leases_run_out_and_what_is_pending_is_for_all(path):
    study = ma.Study.create(path, ma.Box(a=["x", "y"], n=(0, 1)), seed=0, worker="one")
    other = ma.Study.open(path, worker="two")
    asked = [*study.ask(2, lease=1e-3), *other.ask(2)]
    assert len({tuple(point.values()) for point in asked}) == 4
    assert other.pending == asked[2:]  # the time of the others has run out
    again = study.ask(2)
    assert sorted(map(str, again)) == sorted(map(str, asked[:2]))
    study.release(again[0])
    with pytest.raises(StateError, match="not pending"):
        study.release(again[0])
    study.renew(60.0)
    assert all(lease.until for lease in other.leases if lease.worker == "one")


def test_failed_points_are_left_alone(path):
    study = ma.Study.create(path, ma.Box(a=["x", "y"], n=(0, 1)), seed=0, repeats="never")
    asked = study.ask(4)
    study.tell(asked[:2], failed=True)
    study.tell(asked[2:], [1.0, 2.0])
    with pytest.raises(ObservationError, match="has a value already"):
        study.tell(asked[3], 1.0)
    again = ma.Study.open(path)
    with pytest.raises(StateError, match="nothing is left"):
        again.ask()
    assert [candidate.id for candidate in again.top(5)] == [asked[3], asked[2]]


def test_a_study_with_failures_asks_for_what_an_optimizer_asks_for(path):
    """Scattered ones, and a region that fails."""
    box = ma.Box(x=(0.0, 1.0), y=(0.0, 1.0))
    optimizer = ma.Optimizer(box, seed=0)
    ma.Study.create(path, box, seed=0).close()
    for step in range(24):
        study = ma.Study.open(path)
        (point,) = optimizer.ask()
        assert study.ask() == [point]
        fails = step % 5 == 4 or point["x"] > 0.5
        told = ma.FAILED if fails else point["x"] - (point["y"] - 0.3) ** 2
        for each in (optimizer, study):
            each.tell([point], [told])
        study.close()
    again = ma.Study.open(path)
    assert again.n_failed > 8
    assert again.history == optimizer.history
    assert again.best() == optimizer.best()
    assert again.ask(3) == optimizer.ask(3)


@pytest.mark.parametrize(
    "call",
    [
        lambda study: study.add([{"x": 0.5}]),
        lambda study: study.retire([{"x": 0.5}]),
        lambda study: study.predict_rows([{"x": 0.5}]),
    ],
)
def test_what_is_of_lists_only_is_refused(path, call):
    study = ma.Study.create(path, ma.Box(x=(0.0, 1.0)))
    study.tell({"x": 0.5}, 1.0)
    with pytest.raises(ParameterError, match="a box has no list of candidates"):
        call(study)
    assert {event.kind for event in study.events()} == {"create", "tell"}


@pytest.mark.parametrize(
    ("wrong", "error"),
    [({"x": 2.0}, ArmsError), ({"y": 0.5}, ArmsError), (3, ArmsError), ("x", ArmsError)],
)
def test_a_wrong_point_is_refused_and_nothing_is_written(path, wrong, error):
    study = ma.Study.create(path, ma.Box(x=(0.0, 1.0)))
    with pytest.raises(error):
        study.tell(wrong, 1.0)
    with pytest.raises(UnknownArmError, match="neither asked for nor told"):
        study.release({"x": 0.25})
    assert study.n_events == 1
    assert len(study.pool) == 0


@pytest.mark.parametrize(
    "box",
    [
        ma.Box(**MIXED),
        ma.Box([[0, 1], [-1e-300, 5e300]]),
        ma.Box(n=(1, 2**40, "log"), s=["é", "", "x,y"], level=[1, 2.5], on=[False, None]),
    ],
)
def test_a_box_comes_back_as_it_was(box):
    again = read_box(json.loads(json.dumps(written_box(box))))
    assert again.columns == box.columns
    assert again.named == box.named


@pytest.mark.parametrize(
    "options",
    [
        {"pool": ma.Box(s=[("a", "b"), ("c", "d")])},
        {"pool": ma.Box(s=[object(), object()])},
        {"pool": ma.Box(s=[math.inf, 1.0])},
        {"pool": ma.Box(**{"\ud800": (0.0, 1.0)})},
        {"policy": ma.BKB},
        {"policy": ma.Optimizer},
        {"maximiser": lambda score, box, rng: box.sample(1, rng)[0]},
    ],
)
def test_what_cannot_be_written_down_is_refused(path, options):
    with pytest.raises((ParameterError, ArmsError)):
        ma.Study.create(path, **{"pool": ma.Box(x=(0.0, 1.0)), **options})
    assert not path.exists()


def test_other_policies_of_a_box(path):
    box = ma.Box(x=(0.0, 1.0), y=(0.0, 1.0))
    options = {
        "policy": ma.domains.AdaBKB,
        "kernel": ma.kernels.RBF(0.3),
        "noise": 0.1,
        "confidence": ma.Certified(2.0, 0.1),
    }
    study = ma.Study.create(path, box, seed=0, **options)
    optimizer = ma.Optimizer(box, seed=0, **options)
    for _ in range(12):
        (point,) = study.ask()
        assert optimizer.ask() == [point]
        for each in (study, optimizer):
            each.tell(point, point["x"] - point["y"])
    assert ma.Study.open(path).ask() == optimizer.ask()


def test_pictures_copies_and_salvage(path, tmp_path):
    study = ma.Study.create(path, ma.Box(**MIXED), seed=0)
    for point in study.ask(12):
        study.tell(point, value(point))
    study.ask(2)
    assert study.verify() == study.n_events
    for draw in (plots.best_so_far, plots.candidates, plots.fit, plots.importance):
        assert draw(study).data
    file = tmp_path / "study.json"
    file.write_text(exported(study))
    other = imported(tmp_path / "copy.db", file)
    assert other.history == study.history
    assert other.best() == study.best()
    assert other.pending == study.pending
    assert other.ask() == study.ask()
    study.close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE events SET record = '{}' WHERE number = 3")
    connection.close()
    with pytest.raises(StudyDamagedError):
        ma.Study.open(path)
    saved = salvage(path, tmp_path / "saved.db")
    assert saved.results == 11
    whole = ma.Study.open(tmp_path / "saved.db")
    assert [trial.id for trial in whole.history] == [trial.id for trial in other.history[1:]]
    whole.best()


def test_encoding_many_is_encoding_each():
    box = ma.Box(**MIXED)
    points = box.decode(box.sample(500, np.random.default_rng(0)))
    np.testing.assert_array_equal(
        box.encode(points), np.vstack([box.encode(point) for point in points])
    )


@pytest.mark.postgres
def test_a_box_in_a_database(server):
    location = f"{server}#a_box"
    study = ma.Study.create(location, ma.Box(**MIXED), seed=0)
    optimizer = ma.Optimizer(ma.Box(**MIXED), seed=0)
    for _ in range(10):
        (point,) = study.ask()
        assert optimizer.ask() == [point]
        for each in (study, optimizer):
            each.tell(point, value(point))
    again = ma.Study.open(location)
    assert again.ask(2) == optimizer.ask(2)
    for each in (study, again):
        each.close()
