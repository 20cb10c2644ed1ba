"""A model is a function of the books: going on and learning from nothing are the same, bit by
bit."""

from dataclasses import replace

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from models import assert_equal

import manyarms as ma
from manyarms.campaign.model import learn
from manyarms.errors import ManyArmsError

X = np.random.default_rng(0).random((30, 2)).round(2)
KERNEL = ma.kernels.Matern(0.3)
GIVEN = {"kernel": KERNEL, "noise": 0.1}
POOLS = {
    "learned": {},
    "noise given": {"noise": 0.05},
    "never twice": {"repeats": "never"},
    "given": GIVEN,
    "certified": {**GIVEN, "confidence": ma.Certified(2.0, 0.1)},
    "algorithm one": {**GIVEN, "rule": ma.Sampled(5.0)},
    "sampled, learned": {"rule": ma.Sampled(5.0)},
    "exact": {"policy": ma.GPUCB},
    "thompson": {"policy": ma.baselines.Thompson, **GIVEN},
}
BOXES = {"learned": {}, "given": GIVEN, "noise given": {"noise": 0.05}}
VALUE = st.one_of(st.floats(-3, 3), st.just(1e6), st.just(None))
CALLS = st.lists(
    st.one_of(
        st.tuples(st.just("run"), st.integers(1, 4), VALUE),
        st.tuples(st.just("tell"), st.integers(0, 29), VALUE),
        st.tuples(st.just("ask"), st.integers(1, 3), st.none()),
        st.tuples(st.just("late"), st.integers(0, 5), VALUE),
        st.tuples(st.just("release"), st.integers(0, 5), st.none()),
        st.tuples(st.just("correct"), st.integers(0, 50), VALUE),
        st.tuples(st.just("remove"), st.integers(0, 50), st.none()),
        st.tuples(st.just("add"), st.integers(1, 3), st.none()),
        st.tuples(st.just("retire"), st.integers(0, 29), st.none()),
        st.tuples(st.just("restore"), st.integers(0, 29), st.none()),
        st.tuples(st.just("undo"), st.integers(0, 3), st.none()),
        st.tuples(st.just("open"), st.integers(0, 3), st.none()),
    ),
    max_size=18,
)


def point(number):
    """A point of the box, some of them the same."""
    return tuple(np.random.default_rng(number % 13).random(2).round(2).tolist())


def done(searcher, call, is_box):
    """Make a call of an optimizer or a study, or learn that it cannot be made."""
    name, number, value = call
    told = ma.FAILED if value is None else value
    try:
        match name:
            case "run":
                for _ in range(number):
                    ids = searcher.ask(1)
                    noise = 0.3 if number == 2 else None
                    searcher.tell(
                        ids, [told if value is None else value + 0.1 * number], noise=noise
                    )
            case "tell":
                searcher.tell(point(number) if is_box else number, told)
            case "ask":
                searcher.ask(number)
            case "late":
                searcher.tell(searcher.pending[number], told)
            case "release":
                searcher.release(searcher.pending[number])
            case "correct":
                searcher.correct(searcher.history[number], told)
            case "remove":
                searcher.correct(searcher.history[number], None)
            case "add":
                n = len(searcher.pool)
                searcher.add(np.random.default_rng(n).random((number, 2)).round(2))
            case "retire" | "restore":
                getattr(searcher, name)(number)
            case "undo" if isinstance(searcher, ma.Study):
                searcher.undo()
    except (ManyArmsError, IndexError):
        pass


def from_nothing(model):
    return learn(model.settings, model.arms, model.results)


@pytest.mark.parametrize("name", POOLS)
@settings(deadline=None)
@given(calls=CALLS)
def test_an_optimizer_of_a_table_knows_what_its_books_say(name, calls):
    optimizer = ma.Optimizer(ma.Pool.from_array(X), seed=1, **POOLS[name])
    for call in calls:
        done(optimizer, call, False)
        assert_equal(optimizer._state.model, from_nothing(optimizer._state.model))


def hasty(box, **options):
    """An optimizer of a box that searches elsewhere after few results."""
    optimizer = ma.Optimizer(box, seed=1, **options)
    model = optimizer._state.model
    schedule = replace(model.settings.schedule, patience=3)
    model = replace(model, settings=replace(model.settings, schedule=schedule))
    optimizer._state = replace(optimizer._state, model=model)
    return optimizer


@pytest.mark.parametrize("name", BOXES)
@settings(deadline=None)
@given(calls=CALLS)
def test_an_optimizer_of_a_box_knows_what_its_books_say(name, calls):
    options = {"maximiser": ma.domains.MultiStart(16, 1, 3), **BOXES[name]}
    optimizer = hasty(ma.Box([[0, 1], [0, 1]]), **options)
    for call in calls:
        done(optimizer, call, True)
    assert_equal(optimizer._state.model, from_nothing(optimizer._state.model))


@pytest.mark.parametrize("is_box", [False, True], ids=["table", "box"])
@settings(deadline=None)
@given(calls=CALLS)
def test_a_study_knows_what_its_log_says(is_box, calls, tmp_path_factory):
    path = tmp_path_factory.mktemp("study") / "study.db"
    space = ma.Box([[0, 1], [0, 1]]) if is_box else ma.Pool.from_array(X)
    studies = [ma.Study.create(path, space, seed=1), ma.Study.open(path)]
    for each in studies:
        each._replica.snapshot_every = 4
    for number, call in enumerate(calls):
        if call[0] == "open":
            studies[0].close()
            studies[0] = ma.Study.open(path)
        else:
            done(studies[number % 2], call, is_box)
    models = []
    for each in (*studies, ma.Study.open(path)):
        with each._replica.learned() as campaign:
            models.append(campaign.model)
    for model in models:
        assert_equal(model, from_nothing(models[-1]))
    for each in studies:
        each.close()


def test_results_at_once_and_one_by_one_end_in_the_same_fit():
    """Up to a fit only the results count, not how they came."""
    one, other = ma.Optimizer(X, seed=0), ma.Optimizer(X, seed=0)
    values = np.sin(9 * X).sum(axis=1)
    for id in range(20):
        one.tell(id, values[id])
    plan = one._state.model.plan
    other.tell(range(plan.fitted), values[: plan.fitted])
    for id in range(plan.fitted, 20):
        other.tell(id, values[id])
    first, second = one._state.model, other._state.model
    assert first.plan.fitted == second.plan.fitted > 0
    np.testing.assert_array_equal(first.fitted.theta, second.fitted.theta)
    np.testing.assert_array_equal(first.warp.values, second.warp.values)
