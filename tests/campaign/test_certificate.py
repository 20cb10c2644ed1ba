"""What leaves a certificate without its probability: results that were chosen by their values."""

import numpy as np
import polars as pl
import pytest

import manyarms as ma
from manyarms.study.copies import exported, imported

NOISE = 0.5
TABLE = pl.DataFrame({"name": ["a", "b", "c", "d"], "x": [0.0, 1.0, 0.0, 1.0], "z": [0, 0, 1, 1]})
KERNEL = ma.kernels.RBF(0.3)
POOL = ma.Pool.from_frame(TABLE, id="name", columns={"x": "continuous", "z": "continuous"})
F = KERNEL(POOL.X, POOL.X[:1])[:, 0]  # its norm is 1
RADIUS = ma.Certified(norm=1.0, noise=NOISE, delta=0.1)


def told(path, seed, n=120):
    """A study of f, in which "a" was tried again and again, one result a call."""
    study = ma.Study.create(
        path, POOL, direction="maximize", kernel=KERNEL, noise=NOISE, confidence=RADIUS, seed=0
    )
    for value in F[0] + NOISE * np.random.default_rng(seed).standard_normal(n):
        study.tell("a", float(value))
    return study


def corrected(study, path):
    low = [trial for trial in study.history if trial.value < F[0]]
    study.correct(low, [None] * len(low))
    return study


def undone(study, path):
    for trial in study.history:
        if trial.value < F[0]:
            study.undo(trial.event)
    return study


def retyped(study, path):
    """Without "x", candidates of which f is 1 and 0 are one."""
    study.retype({"x": "ignore"})
    return study


def brought(study, path):
    file = path.with_suffix(".json")
    file.write_text(exported(corrected(study, path)))
    return imported(path.with_name("copy.db"), file)


def is_inside(study):
    """Whether f lies within the intervals that the radius gives, at all candidates."""
    with study._now() as campaign:
        model = campaign.model
        predicted = model.predict(campaign.ledger.candidates.arm_of)
        _, low, high = model.in_values(*predicted, model.radius)
    return bool((low <= F).all() and (F <= high).all())


@pytest.mark.parametrize("change", [corrected, undone, retyped, brought])
def test_what_was_changed_because_of_its_value_leaves_no_probability(tmp_path, change):
    """f was outside of the intervals in 20 of 20 runs of each."""
    for seed in range(2):
        path = tmp_path / f"{seed}" / "study.db"
        path.parent.mkdir()
        study = told(path, seed)
        assert is_inside(study)
        assert study.certificate().probability == 0.9
        study = change(study, path)
        assert not is_inside(study)
        certificate = study.certificate()
        assert certificate.probability is None
        assert "changed or taken back" in certificate.reason
        assert "probability" not in str(certificate)


def test_a_correction_that_is_taken_back_was_made_all_the_same(tmp_path):
    study = corrected(told(tmp_path / "study.db", 0, 8), tmp_path)
    study.undo()
    assert study.certificate().probability is None


def test_types_that_are_corrected_before_any_result_leave_the_promise(tmp_path):
    study = told(tmp_path / "study.db", 0, 0)
    study.retype({"z": "ordered"})
    study.tell("a", 0.3)
    assert study.certificate().probability == 0.9


def test_an_export_learns_in_the_order_told(tmp_path):
    """The same events make the same model, bit by bit, and keep what was promised of it."""
    study = told(tmp_path / "study.db", 0, 12)
    study.tell(["d", "b"], [0.1, 0.2])
    file = tmp_path / "study.json"
    file.write_text(exported(study))
    again = imported(tmp_path / "copy.db", file)
    assert again.certificate() == study.certificate()
    assert again.certificate().probability == 0.9
    ids = POOL.ids.tolist()
    assert again.predict(ids).mean.tolist() == study.predict(ids).mean.tolist()
    assert again.predict(ids).std.tolist() == study.predict(ids).std.tolist()


def test_results_told_together_are_a_condition_unless_they_were_asked_for(tmp_path):
    together = "told in one call"
    study = told(tmp_path / "study.db", 0, 12)
    study.tell(study.ask(3), [0.1, 0.2, 0.3])
    study.tell("d", 0.1)
    assert together not in study.certificate().reason
    study.tell(study.ask(), 0.1)
    study.tell(["d", "b"], [0.1, 0.2])
    assert study.certificate().probability == 0.9
    assert together in str(study.certificate())


def test_an_optimizer_is_told_the_same():
    optimizer = ma.Optimizer(
        POOL, direction="maximize", kernel=KERNEL, noise=NOISE, confidence=RADIUS
    )
    for value in (0.9, 1.4, 1.2):
        optimizer.tell("a", value)
    assert optimizer.certificate().probability == 0.9
    optimizer.correct(optimizer.history[0], None)
    assert "changed or taken back" in optimizer.certificate().reason
