"""Mistakes and how they are taken back: afterwards a study is as if they had not been made, whoever reads it."""

import shutil
import tempfile
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import manyarms as ma
from manyarms.errors import ObservationError, ParameterError, StateError, UnknownArmError
from manyarms.study.copies import exported, imported
from manyarms.study.salvage import salvage

X = np.random.default_rng(0).random((40, 2))
X.setflags(write=False)
MORE = np.random.default_rng(1).random((5, 2))
GIVEN = {"kernel": ma.kernels.Matern(0.5), "noise": 0.1}
"""Nothing is fitted: the model only observes."""
ONE, OTHER = 7, 16
"""Candidates that no study of these tests asks for by itself."""


def value(id):
    return float(np.round(10 * np.sin(3 * X[id]).sum(), 3))


def run(study, n):
    for _ in range(n):
        (id,) = study.ask()
        study.tell(id, value(id))


def assert_alike(one, other):
    """They know the same and predict the same, up to rounding."""
    assert one.history == other.history
    assert one.pending == other.pending
    assert one.pool.ids.tolist() == other.pool.ids.tolist()
    if any(not trial.failed for trial in one.history):
        mine, its = (each.predict(each.pool.ids) for each in (one, other))
        np.testing.assert_allclose(mine.mean, its.mean, rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(mine.std, its.std, rtol=1e-6, atol=1e-9)


def refitted(study):
    """The study, its model learned anew by a result that is taken back at once."""
    study.tell(int(study.pool.ids[0]), 1.0)
    study.undo()
    return study


def unpaired(study, without):
    """An optimizer that was told all results of a study at once."""
    optimizer = ma.Optimizer(study.pool, **without)
    optimizer.tell(
        [trial.id for trial in study.history],
        [ma.FAILED if trial.failed else trial.value for trial in study.history],
    )
    return optimizer


# Each mistake, and what takes it back. Those with a value are told of candidate ONE.


def a_typo_is_corrected(study):
    study.tell(ONE, 1000 * value(ONE))
    study.correct(ONE, value(ONE))


def a_typo_is_taken_back_and_told_again(study):
    study.tell(ONE, 1000 * value(ONE))
    study.best()  # the model learned it, and wrote that down
    study.undo()
    study.tell(ONE, value(ONE))


def a_typo_of_long_ago_is_taken_back_by_its_number(study):
    study.tell(ONE, 1000 * value(ONE))
    number = study.n_events
    study.tell(ONE, value(ONE))
    study.best()
    study.undo(number)


def one_of_two_results_is_corrected(study):
    study.tell(ONE, value(ONE))
    study.tell(ONE, -500.0)
    study.correct(study.history[-1], None)


def a_result_of_another_candidate_is_taken_back(study):
    study.tell([ONE, OTHER], [value(ONE), 77.0])
    study.correct(study.history[-1], None, note="it was none of ours")


def a_failure_that_was_none_is_corrected(study):
    study.tell(ONE, failed=True)
    study.correct(ONE, value(ONE))


def a_value_that_was_a_failure_is_undone(study):
    study.tell(ONE, value(ONE))
    study.correct(ONE, ma.FAILED)
    study.undo()


def an_undo_is_undone(study):
    study.tell(ONE, value(ONE))
    study.undo()
    study.undo(study.n_events)


def a_candidate_that_was_retired_is_restored(study):
    study.tell(ONE, value(ONE))
    study.retire([ONE, OTHER])
    study.restore(OTHER)
    study.restore(ONE)


def retiring_is_undone(study):
    study.tell(ONE, value(ONE))
    study.retire([ONE, OTHER])
    study.undo()


def asking_is_undone(study):
    study.tell(ONE, value(ONE))
    study.ask(3)
    study.undo()


def releasing_is_undone(study):
    (id,) = study.ask()
    study.release(id)
    study.undo()
    study.tell(ONE, value(ONE))
    study.release(id)


def adding_is_undone(study):
    study.tell(ONE, value(ONE))
    study.add(MORE)
    study.undo()


MISTAKES = [
    a_typo_is_corrected,
    a_typo_is_taken_back_and_told_again,
    a_typo_of_long_ago_is_taken_back_by_its_number,
    one_of_two_results_is_corrected,
    a_result_of_another_candidate_is_taken_back,
    a_failure_that_was_none_is_corrected,
    a_value_that_was_a_failure_is_undone,
    an_undo_is_undone,
    a_candidate_that_was_retired_is_restored,
    retiring_is_undone,
    asking_is_undone,
    releasing_is_undone,
    adding_is_undone,
]


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, GIVEN, {"direction": "minimize", "seed": 2}])
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_that_was_taken_back_leaves_no_trace(folder, mistake, options):
    study = ma.Study.create(folder / "wrong.db", X, worker="ada", **options)
    right = ma.Study.create(folder / "right.db", X, worker="ada", **options)
    other = ma.Study.open(folder / "wrong.db")  # is open all the time
    for each in (study, right):
        run(each, 12)
        each.ask(2)
    mistake(study)
    right.tell(ONE, value(ONE))
    for each in (refitted(study), other, ma.Study.open(folder / "wrong.db")):
        assert_alike(each, refitted(right))
    assert_alike(unpaired(study, options), unpaired(right, options))
    assert study.ask(3) == right.ask(3)


@pytest.mark.slow
@pytest.mark.parametrize("mistake", MISTAKES[:8])
def test_after_a_correction_the_model_is_that_of_the_results_that_are_right(path, mistake):
    study = ma.Study.create(path, X)
    run(study, 12)
    mistake(study)
    if mistake is a_typo_is_taken_back_and_told_again:
        study.undo()
    fresh = ma.Optimizer(study.pool)
    for _, group in groupby(study.history, lambda trial: trial.event):  # one `tell` at a time
        told = list(group)
        fresh.tell(
            [trial.id for trial in told],
            [ma.FAILED if trial.failed else trial.value for trial in told],
        )
    np.testing.assert_allclose(
        study.predict(study.pool.ids).mean, fresh.predict(study.pool.ids).mean, rtol=1e-7
    )


def test_an_optimizer_is_corrected_as_a_study_is(path):
    study, optimizer = ma.Study.create(path, X), ma.Optimizer(X)
    for each in (study, optimizer):
        run(each, 10)
        each.tell([3, 3], [900.0, value(3)])
        each.correct(next(trial for trial in each.history if trial.value == 900.0), 5.0, noise=2.0)
        each.retire(7)
        each.restore(7)
        run(each, 3)
    assert_alike(study, optimizer)
    assert study.history[10].noise == 2.0
    assert study.history[11].noise is None


def test_the_points_of_a_box_keep_their_numbers(path):
    box = ma.Box(x=(0.0, 1.0), y=(0.0, 1.0))
    study, optimizer = ma.Study.create(path, box), ma.Optimizer(box)
    for each in (study, optimizer):
        for _ in range(10):
            (point,) = each.ask()
            each.tell([point], [point["x"] - point["y"] ** 2])
    points = study.pool.ids
    study.ask(2)
    known = study.pool.ids
    study.undo()  # the asking
    study.undo()  # the last result
    optimizer.correct(optimizer.history[-1], None)
    assert study.pending == [points[-1]]  # it is being tried again
    assert study.pool.ids == ma.Study.open(path).pool.ids == known
    for each in (study, ma.Study.open(path)):
        mean = each.predict(list(points)).mean
        np.testing.assert_allclose(mean, optimizer.predict(list(points)).mean, rtol=1e-6)
    study.correct(study.history[-1], 3.0, note="misread")
    optimizer.correct(optimizer.history[-1], 3.0)
    np.testing.assert_allclose(
        study.predict(list(points)).mean, optimizer.predict(list(points)).mean, rtol=1e-6
    )


def test_a_later_value_lifts_failed():
    optimizer = ma.Optimizer(X, repeats=2)
    optimizer.tell([3, 4], [ma.FAILED, ma.FAILED])
    optimizer.tell([3, 5], [1.0, 2.0])
    optimizer.tell(5, failed=True)
    assert optimizer.pool.ids[optimizer._state.ledger.outcomes.failed].tolist() == [4, 5]
    assert {each.id for each in optimizer.top(40)} == set(range(40)) - {4, 5}


def test_a_failure_and_then_a_value_may_come_in_one_call_without_repeats():
    optimizer = ma.Optimizer(X, repeats="never")
    optimizer.tell([3, 3], [ma.FAILED, 1.0])
    with pytest.raises(ObservationError, match="has a value"):
        optimizer.tell(3, 2.0)
    with pytest.raises(ObservationError, match="two values"):
        optimizer.correct(optimizer.history[0], 2.0)


def test_what_was_asked_for_is_pending_again_with_its_forecast(path):
    study = ma.Study.create(path, X)
    run(study, 9)
    (id,) = study.ask()
    study.tell(id, 3.0, token="job 1")
    forecast = study.history[-1].forecast
    study.undo()
    assert study.pending == [id]
    study.tell(id, 4.0, token="job 1")  # the token was taken back, too
    assert study.history[-1].forecast == forecast is not None
    assert study.history[-1].value == 4.0


def test_the_log_says_who_and_why(path):
    study = ma.Study.create(path, X, worker="ada")
    study.tell([1, 2], [1.0, 2.0], note=["by hand", None], batch=[1, 0])
    before = study.correct(1, 10.0, note="comma")
    undone = study.undo(note="it was right")
    study.retire(4, note="sold out")
    study.restore(4, note="bought")
    assert [trial.value for trial in before] == [1.0]
    assert undone.kind == "correct"
    correct, undo, retire, restore = list(study.events())[-4:]
    assert correct.payload["before"] == [1.0]
    assert [each.payload["worker"] for each in (correct, undo, retire, restore)] == ["ada"] * 4
    notes = [each.payload["note"] for each in (correct, undo, retire, restore)]
    assert notes == ["comma", "it was right", "sold out", "bought"]
    assert [(trial.event, trial.note, trial.batch) for trial in study.history] == [
        (2, "by hand", 1),
        (2, None, 0),
    ]


def test_wrong_corrections_are_refused_and_change_nothing(path):
    study = ma.Study.create(path, X, repeats="never")
    study.tell([1, 2], [1.0, ma.FAILED])
    old = study.history[0]
    study.correct(1, 3.0)
    n = study.n_events
    wrong = [
        (StateError, lambda: study.correct(7, 1.0)),
        (StateError, lambda: study.correct(old, 1.0)),
        (UnknownArmError, lambda: study.correct(99, 1.0)),
        (ObservationError, lambda: study.correct([1, 1], [1.0, 2.0])),
        (ObservationError, lambda: study.correct([1, 2], [1.0])),
        (ObservationError, lambda: study.correct(1, "much")),
        (ObservationError, lambda: study.correct(1, float("nan"))),
        (ObservationError, lambda: study.correct(1, 1.0, noise=-1.0)),
        (ParameterError, lambda: study.correct(1, 1.0, note=3)),
        (ParameterError, lambda: study.correct(1, 1.0, note="x" * 2000)),
        (ParameterError, lambda: study.tell(5, 1.0, note=["a", "b"])),
        (ParameterError, lambda: study.tell(5, 1.0, batch=[-1])),
        (ParameterError, lambda: study.undo(0)),
        (ParameterError, lambda: study.undo(99)),
        (ParameterError, lambda: study.undo("last")),
        (StateError, lambda: study.undo(1)),
        (StateError, lambda: study.restore(1)),
    ]
    for kind, call in wrong:
        with pytest.raises(kind):
            call()
    assert study.n_events == n


def test_what_later_events_need_is_not_taken_back(path):
    study = ma.Study.create(path, X)
    study.add(MORE)
    study.tell(42, 1.0)
    with pytest.raises(StateError, match=r"later needs it.*42"):
        study.undo(2)
    study.undo()
    study.undo()
    assert len(study.pool) == 40
    assert not study.history
    with pytest.raises(StateError, match="nothing is left"):
        study.undo()
    with pytest.raises(StateError, match="taken back by event 5"):
        study.undo(2)
    study.undo(5)
    study.undo(4)
    assert len(study.pool) == 45
    assert study.history[0].id == 42
    once = ma.Study.create(path.with_name("once.db"), X, repeats="never")
    once.tell(3, 1.0)
    once.correct(3, None)
    once.tell(3, 2.0)
    with pytest.raises(StateError, match="two values"):
        once.undo(3)


def test_a_correction_of_what_is_taken_back_later_counts_no_more(path):
    study = ma.Study.create(path, X)
    study.tell([1, 2], [1.0, 2.0])
    study.correct([1, 2], [10.0, 20.0])
    study.undo(2)
    assert not study.history
    study.undo(4)
    assert [trial.value for trial in study.history] == [10.0, 20.0]


def test_snapshots_do_not_survive_a_correction(path):
    study = ma.Study.create(path, X)
    study._replica.snapshot_every = 3
    run(study, 12)
    study.best()
    assert study.snapshot_bytes
    wrong = study.history[2]
    study.correct(wrong, 50.0)
    again = ma.Study.open(path)  # from the snapshot, if that were used
    assert_alike(again, unpaired_pending(study))
    study.undo()
    study._replica.snapshot_every = 3
    run(study, 4)
    study.best()
    assert_alike(ma.Study.open(path), study)
    study.undo(study.history[5].event)
    assert_alike(ma.Study.open(path), study)


def unpaired_pending(study):
    """The same as `unpaired`, to be compared with a study that nothing was asked of since."""
    assert not study.pending
    optimizer = unpaired(study, {})
    # What was predicted when they were asked for is not part of what an optimizer was told here.
    entries = study._replica.replay.ledger.outcomes.entries
    optimizer._state.ledger.outcomes.entries.items["forecast"] = entries.items["forecast"]
    return optimizer


def test_what_was_learned_of_a_wrong_result_is_left(path):
    """Another process corrects a result that this one has learned."""
    study = ma.Study.create(path, X)
    other = ma.Study.open(path)
    run(study, 10)
    study.tell(3, 1000.0)
    study.best()
    other.correct(3, 1.0)
    assert_alike(study, other)


def test_copies_and_salvage_have_the_corrections(folder):
    study = ma.Study.create(folder / "study.db", X)
    run(study, 10)
    study.correct(study.history[1], 7.0)
    study.tell(5, 1.0)
    study.undo()
    study.retire(6)
    (folder / "study.json").write_text(exported(study))
    copy = imported(folder / "copy.db", folder / "study.json")
    assert_alike(copy, study)
    saved = salvage(folder / "study.db", folder / "saved.db")
    again = ma.Study.open(folder / "saved.db")
    assert again.history == study.history
    assert saved.results == len(study.history)
    # Numbers in files and events stay right.
    assert [trial.event for trial in again.history] == [trial.event for trial in study.history]
    assert_alike(refitted(again), refitted(study))


@pytest.mark.postgres
def test_mistakes_in_a_database(server):
    place = f"{server}#mistakes"
    study, other = ma.Study.create(place, X), ma.Study.open(place)
    run(study, 9)
    wrong = study.history[2]
    study.correct(wrong, 500.0)
    assert other.best().measured.id == wrong.id
    other.undo()
    assert_alike(study, other)
    assert_alike(ma.Study.open(place), other)


# Any sequence of calls


class Mistakes(RuleBasedStateMachine):
    """Two studies on one file and one that is opened anew agree with a list of calls, folded the plain way."""

    @initialize(seed=st.integers(0, 3), repeats=st.sampled_from(["allow", 2]))
    def start(self, seed, repeats):
        memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
        self.folder = Path(tempfile.mkdtemp(dir=memory))
        path = self.folder / "study.db"
        pool = ma.Pool.from_array(X[:12])
        options = {"seed": seed, "repeats": repeats}
        self.studies = [
            ma.Study.create(path, pool, worker="ada", **options),
            ma.Study.open(path, worker="ada"),
        ]
        for study in self.studies:
            study._replica.snapshot_every = 3
        self.path, self.options = path, options
        self.calls = {}  # by the number of the event: kind, ids, values or what it is about
        self.has_changed = False

    def note(self, which, kind, *what):
        # The last event is not always the call's: learning may be written before it, never after.
        self.calls[self.studies[which].n_events] = (kind, *what)
        self.has_changed = kind in ("correct", "undo")

    def folded(self):
        """Results [(source, id, value)], pending ids, and retired ones: the obvious way."""
        void = set()
        for number, call in sorted(self.calls.items(), reverse=True):
            if call[0] == "undo" and number not in void:
                void.add(call[1])
        results, pending, retired = [], [], set()
        for number, (kind, *what) in sorted(self.calls.items()):
            if number in void or kind == "undo":
                continue
            if kind == "ask":
                pending += what[0]
            elif kind == "tell":
                for place, (id, told) in enumerate(zip(*what, strict=True)):
                    results.append(((number, place), id, told))
                    if id in pending:
                        pending.remove(id)
            elif kind == "correct":
                source, told = what
                results = [(each, id, told if each == source else old) for each, id, old in results]
                results = [result for result in results if result[2] is not None]
            elif kind == "retire":
                retired.add(what[0])
                pending = [id for id in pending if id != what[0]]
            elif kind == "restore":
                retired.discard(what[0])
        return results, pending, retired

    which = st.integers(0, 1)

    @rule(which=which, n=st.integers(1, 3))
    def ask(self, which, n):
        try:
            ids = self.studies[which].ask(n)
        except StateError:
            return  # nothing is left
        self.note(which, "ask", ids)

    @rule(
        which=which,
        ids=st.lists(st.integers(0, 11), min_size=1, max_size=3),
        fails=st.integers(0, 5),
    )
    def tell(self, which, ids, fails):
        told = ["failed" if i == fails else value(id) + len(self.calls) for i, id in enumerate(ids)]
        values = [ma.FAILED if each == "failed" else each for each in told]
        self.studies[which].tell(ids, values)
        self.note(which, "tell", ids, told)

    @precondition(lambda self: self.folded()[0])
    @rule(
        which=which, data=st.data(), told=st.sampled_from([1.0, 5.0, 400.0, -3.0, "failed", None])
    )
    def correct(self, which, data, told):
        results = self.folded()[0]
        number = data.draw(st.integers(0, len(results) - 1))
        study = self.studies[which]
        study.correct(study.history[number], ma.FAILED if told == "failed" else told)
        self.note(which, "correct", results[number][0], told)

    @rule(which=which)
    def undo_the_last(self, which):
        try:
            event = self.studies[which].undo()
        except StateError:
            return
        assert event.kind != "undo"
        self.note(which, "undo", event.number)

    @precondition(lambda self: self.calls)
    @rule(which=which, data=st.data())
    def undo_any(self, which, data):
        number = data.draw(st.sampled_from(sorted(self.calls)))
        try:
            self.studies[which].undo(number)
        except StateError:
            return
        self.note(which, "undo", number)

    @rule(which=which, id=st.integers(0, 11))
    def retire(self, which, id):
        self.studies[which].retire(id)
        self.note(which, "retire", id)

    @precondition(lambda self: self.folded()[2])
    @rule(which=which, data=st.data())
    def restore(self, which, data):
        id = data.draw(st.sampled_from(sorted(self.folded()[2])))
        self.studies[which].restore(id)
        self.note(which, "restore", id)

    @rule(which=which)
    def learn(self, which):
        if any(told != "failed" for _, _, told in self.folded()[0]):
            self.studies[which].predict(0)
            self.has_changed = False

    @rule(which=which)
    def reopen(self, which):
        self.studies[which] = ma.Study.open(self.path, worker="ada")
        self.studies[which]._replica.snapshot_every = 3

    @invariant()
    def agree(self):
        results, pending, retired = self.folded()
        expected = [(id, None if told == "failed" else told) for _, id, told in results]
        last = {id: told for _, id, told in results}
        failed = {id for id, told in last.items() if told == "failed"}
        for study in (*self.studies, ma.Study.open(self.path)):
            assert [(trial.id, trial.value) for trial in study.history] == expected
            assert study.pending == pending
            outcomes = study._replica.replay.ledger.outcomes
            assert set(np.flatnonzero(outcomes.retired).tolist()) == retired
            assert set(np.flatnonzero(outcomes.failed).tolist()) == failed

    def teardown(self):
        if not hasattr(self, "folder"):
            return
        results, _, _ = self.folded()
        if any(told != "failed" for _, _, told in results):
            one, other = self.studies
            expected = one.predict(range(12)).mean
            for study in (other, ma.Study.open(self.path)):
                np.testing.assert_allclose(study.predict(range(12)).mean, expected, rtol=1e-7)
            if self.has_changed:
                fresh = unpaired(one, self.options)
                np.testing.assert_allclose(fresh.predict(range(12)).mean, expected, rtol=1e-7)
        shutil.rmtree(self.folder)


Mistakes.TestCase.settings = settings(
    max_examples=25,
    stateful_step_count=15,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
    phases=(Phase.generate,),
)
test_any_sequence_of_mistakes = pytest.mark.slow(Mistakes.TestCase)
