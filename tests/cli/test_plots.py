"""Figures: their traces hold what the optimizer says, in both directions, with failures, replicates and many results."""

import json

import numpy as np
import plotly.graph_objects as go
import pytest

import manyarms as ma
from manyarms import plots
from manyarms.errors import ManyArmsError, ParameterError, StateError
from manyarms.kernels import RBF

FIGURES = {
    "best_so_far": plots.best_so_far,
    "regret": lambda optimizer: plots.regret(optimizer, 5.0),
    "fit": plots.fit,
    "candidates": plots.candidates,
    "importance": plots.importance,
    "slices": plots.slices,
}
BOTH = pytest.mark.parametrize("direction", ["maximize", "minimize"])
VALUES = [1.0, 3.0, 2.0, None, 0.5, 4.0, 0.2, 3.5, None, 0.1]


def names(n):
    return [f"c{i:03d}" for i in range(n)]


def optimizer(direction="maximize", values=VALUES, n=40, **options):
    """The first candidates were tried, one tell each; None is a failure."""
    X = np.random.default_rng(0).random((n, 3))
    pool = ma.Pool.from_array(X, ids=names(n), names=["heat", "time", "dose"])
    made = ma.Optimizer(pool, direction=direction, **options)
    for name, value in zip(names(n), values, strict=False):
        made.tell(name, ma.FAILED if value is None else value)
    return made


def traces(figure):
    assert isinstance(figure, go.Figure)
    return {trace.name: trace for trace in figure.data}


@BOTH
def test_best_so_far(direction):
    drawn = traces(plots.best_so_far(optimizer(direction)))
    number, value = [1, 2, 3, 5, 6, 7, 8, 10], [v for v in VALUES if v is not None]
    np.testing.assert_array_equal(drawn["value"].x, number)
    np.testing.assert_array_equal(drawn["value"].y, value)
    assert drawn["value"].text == ("c000", "c001", "c002", "c004", "c005", "c006", "c007", "c009")
    best, holder = {
        "maximize": ([1, 3, 3, 3, 4, 4, 4, 4], "c000 c001 c001 c001 c005 c005 c005 c005"),
        "minimize": ([1, 1, 1, 0.5, 0.5, 0.2, 0.2, 0.1], "c000 c000 c000 c004 c004 c006 c006 c009"),
    }[direction]
    np.testing.assert_array_equal(drawn["best so far"].y, best)
    assert list(drawn["best so far"].text) == holder.split()
    assert drawn["best so far"].line.shape == "hv"
    np.testing.assert_array_equal(drawn["failed"].x, [4, 9])
    assert drawn["failed"].text == ("c003", "c008")
    assert drawn["failed"].yaxis == "y2"  # whose zero is the axis, whatever the values are


def test_nothing_is_marked_as_failed_where_nothing_failed():
    assert set(traces(plots.best_so_far(optimizer(values=[1.0, 2.0])))) == {"value", "best so far"}


def test_a_tie_belongs_to_the_first():
    assert traces(plots.best_so_far(optimizer(values=[1.0, 1.0])))["best so far"].text == (
        "c000",
        "c000",
    )


@BOTH
def test_regret(direction):
    known, sign = (4.5, 1) if direction == "maximize" else (0.05, -1)
    figure = plots.regret(optimizer(direction), known)
    drawn, value = traces(figure), np.array([v for v in VALUES if v is not None])
    running = np.maximum.accumulate(value) if sign > 0 else np.minimum.accumulate(value)
    np.testing.assert_allclose(drawn["of the best so far"].y, np.abs(known - running))
    np.testing.assert_allclose(
        drawn["average"].y, [np.mean(sign * (known - value[: i + 1])) for i in range(len(value))]
    )
    np.testing.assert_array_equal(drawn["average"].x, [1, 2, 3, 5, 6, 7, 8, 10])
    assert figure.layout.yaxis.type == "log"
    assert set(drawn) == {"of the best so far", "average"}


def test_regret_that_is_not_positive_is_left_out_of_the_log_axis_and_marked():
    figure = plots.regret(optimizer(), 3.0)  # reached by the second result, surpassed by the sixth
    drawn = traces(figure)
    np.testing.assert_array_equal(drawn["of the best so far"].y, [2.0] + 7 * [np.nan])
    assert (np.asarray(drawn["average"].y) > 0).all()
    np.testing.assert_array_equal(drawn["best value reached"].x, [2])
    assert drawn["best value reached"].text == ("c001",)
    figure = plots.regret(optimizer(), 0.1)
    np.testing.assert_allclose(traces(figure)["of the best so far"].y[0], -0.9)
    assert figure.layout.yaxis.type is None  # nothing is positive


def test_ticks_of_a_log_axis_are_no_more_than_fit():
    assert plots.regret(optimizer(), 4.5).layout.yaxis.dtick == "D2"
    assert plots.regret(optimizer(), 4.0 + 1e-6).layout.yaxis.dtick == 1


@pytest.mark.parametrize("best", [np.nan, np.inf, "4", None, True])
def test_regret_takes_a_number(best):
    with pytest.raises(ParameterError, match="best_value must be the best true value"):
        plots.regret(optimizer(), best)


@BOTH
def test_fit(direction):
    made = optimizer(direction)
    made.tell(["c001", "c001", "c020"], [2.0, 4.6, 1.5])  # replicates
    figure = plots.fit(made)
    drawn = traces(figure)
    dots = drawn["candidate, 95 % interval"]
    tried = ["c000", "c001", "c002", "c004", "c005", "c006", "c007", "c009", "c020"]
    assert list(dots.text) == tried
    np.testing.assert_allclose(dots.x, [1.0, 3.2, 2.0, 0.5, 4.0, 0.2, 3.5, 0.1, 1.5])
    predicted = made.left_out(0.95).predicted
    np.testing.assert_allclose(dots.y, predicted.mean)
    np.testing.assert_allclose(dots.y + dots.error_y.array, predicted.high)
    np.testing.assert_allclose(dots.y - dots.error_y.arrayminus, predicted.low)
    assert min(dots.error_y.array.min(), dots.error_y.arrayminus.min()) >= 0
    np.testing.assert_allclose(
        dots.customdata, np.column_stack([predicted.low, predicted.high, [1, 3] + 7 * [1]])
    )
    np.testing.assert_array_equal(drawn["equal"].x, drawn["equal"].y)
    both = np.concatenate([dots.x, dots.y])
    np.testing.assert_allclose(drawn["equal"].x, [both.min(), both.max()])


@BOTH
def test_slices(direction):
    made = optimizer(direction)
    found = made.slice("heat", "dose")
    (drawn,) = plots.slices(made, "heat", "dose").data
    np.testing.assert_array_equal(drawn.z, found.mean)
    # Dark is bad, whichever way is better.
    assert bool(drawn.reversescale) == (direction == "minimize")
    first, second, *_ = made.effects()
    assert plots.slices(made).layout.xaxis.title.text == first
    assert plots.slices(made).layout.yaxis.title.text == second
    assert plots.slices(made, y=first).layout.xaxis.title.text == second
    (shape,) = plots.slices(made, "heat", "dose").layout.shapes
    assert (shape.x0 + 0.5, shape.y0 + 0.5) == found.at


def test_slices_need_two_columns():
    made = ma.Optimizer(np.arange(5.0)[:, None])
    made.tell([0, 1], [1.0, 2.0])
    with pytest.raises(StateError, match="two columns"):
        plots.slices(made)


def test_long_names_that_begin_alike_stay_apart():
    assert plots._short(["a" * 30 + "1", "a" * 30 + "2", "b"]) == [
        "aaaaaaaaaaaa…aaaaaaaaaa1",
        "aaaaaaaaaaaa…aaaaaaaaaa2",
        "b",
    ]


@BOTH
def test_candidates(direction):
    made = optimizer(direction)
    top = made.top(12, 0.8)
    figure = plots.candidates(made, k=12, level=0.8)
    drawn = traces(figure)
    assert list(figure.layout.yaxis.ticktext) == [each.id for each in top]
    assert figure.layout.yaxis.range[0] > figure.layout.yaxis.range[1]  # the best on top
    for name, was_tried in (("tried", True), ("not tried", False)):
        rows = [
            (rank, each) for rank, each in enumerate(top, 1) if (each.n_results > 0) == was_tried
        ]
        trace = drawn[name]
        assert list(trace.text) == [each.id for _, each in rows]
        np.testing.assert_array_equal(trace.y, [rank for rank, _ in rows])
        np.testing.assert_allclose(trace.x, [each.mean for _, each in rows])
        np.testing.assert_allclose(trace.x + trace.error_x.array, [each.high for _, each in rows])
        np.testing.assert_allclose(
            trace.x - trace.error_x.arrayminus, [each.low for _, each in rows]
        )
    assert drawn["tried"].marker.symbol == "circle"
    assert drawn["not tried"].marker.symbol == "circle-open"
    assert "80 %" in figure.layout.xaxis.title.text


def test_candidates_of_a_small_pool_and_of_one():
    small = optimizer(values=[1.0, 2.0, 3.0], n=3)
    assert set(traces(plots.candidates(small))) == {"tried"}
    assert plots.candidates(small).layout.title.text == "Top 3 candidates"
    assert plots.candidates(small, k=1).layout.title.text == "Top candidate"
    small.retire(names(3))
    with pytest.raises(ManyArmsError):
        plots.candidates(small)
    with pytest.raises(ParameterError, match="k must be"):
        plots.candidates(optimizer(), k=0)
    with pytest.raises(ParameterError, match="level must be"):
        plots.candidates(optimizer(), level=95)


def test_names_are_shortened_beside_the_axis_and_their_tags_are_not_read():
    long = "C1=CC=C(C=C1)C(=O)OC2CC3CCC2N3"
    made = ma.Optimizer(ma.Pool.from_array(np.eye(3), ids=[long, "<b>bold</b> & co", "plain"]))
    made.tell([long, "plain"], [3.0, 1.0])
    figure = plots.candidates(made)
    labels = set(figure.layout.yaxis.ticktext)
    assert labels == {long[:23] + "…", "&lt;b&gt;bold&lt;/b&gt; &amp; co", "plain"}
    assert {text for trace in figure.data for text in trace.text} >= {long, "plain"}


@BOTH
def test_importance(direction):
    made = optimizer(direction)
    figure = plots.importance(made)
    (bars,) = figure.data
    assert list(figure.layout.yaxis.ticktext) == list(made.importance)
    np.testing.assert_allclose(bars.x, list(made.importance.values()))
    assert (np.diff(bars.x) <= 0).all()
    np.testing.assert_array_equal(bars.y, [1, 2, 3])
    assert figure.layout.yaxis.range[0] > figure.layout.yaxis.range[1]


def test_importance_tells_numbers_and_categories_apart():
    rows = [{"x": i % 7, "y": i % 5, "kind": "ab"[i % 2]} for i in range(70)]
    made = ma.Optimizer(ma.Pool.from_dicts(rows), seed=0)
    made.tell(range(12), [row["x"] + (row["kind"] == "a") for row in rows[:12]])
    figure = plots.importance(made)
    colors = dict(zip(made.importance, figure.data[0].marker.color, strict=True))
    assert colors == {"x": plots.BLUE, "y": plots.BLUE, "kind": plots.ORANGE}
    assert "categories (orange)" in figure.layout.xaxis.title.text


def test_importance_needs_learned_lengthscales():
    with pytest.raises(StateError, match="no lengthscales were learned"):
        plots.importance(optimizer(kernel=RBF(0.5)))


@pytest.mark.parametrize("name", FIGURES)
@pytest.mark.parametrize("values", [[], [None, None]], ids=["nothing told", "failures only"])
def test_nothing_to_show_is_an_error(name, values):
    with pytest.raises(StateError, match="tell"):
        FIGURES[name](optimizer(values=values))


@pytest.mark.parametrize("name", [name for name in FIGURES if name not in ("importance", "slices")])
def test_one_value_can_be_seen(name):
    for trace in FIGURES[name](optimizer(values=[1.0])).data:
        assert "markers" in trace.mode or trace.name == "equal"


@pytest.mark.parametrize("name", FIGURES)
def test_titles_colours_and_data_that_serialise(name):
    figure = FIGURES[name](optimizer("minimize"))
    told = json.loads(figure.to_json())
    assert len(figure.layout.title.text) < 25
    assert figure.layout.xaxis.title.text
    assert figure.layout.template.layout.plot_bgcolor == "white"
    for trace in told["data"]:
        assert trace.get("hovertemplate") or trace["hoverinfo"] == "skip"
        if trace["type"] == "heatmap":
            continue
        color = trace.get("line", {}).get("color") or trace["marker"]["color"]
        assert color in (plots.BLUE, plots.ORANGE, plots.GREY)


@pytest.mark.parametrize("name", FIGURES)
def test_an_optimizer_is_not_changed_by_its_figure(name):
    made, other = optimizer(), optimizer()
    FIGURES[name](made)
    assert made.ask(3) == other.ask(3)


def test_thousands_of_results_with_whole_numbers_as_ids():
    rng = np.random.default_rng(0)
    X, ids = rng.random((1500, 2)), rng.integers(1500, size=2000)
    made = ma.Optimizer(
        X, direction="minimize", kernel=RBF(0.5), noise=0.1
    )  # nothing is learned: that is quick
    values = X[ids].sum(axis=1) + 0.1 * rng.standard_normal(2000)
    for part in np.array_split(np.arange(2000), 4):
        made.tell(ids[part], values[part], failed=part % 100 == 99)
    drawn = {name: traces(draw(made)) for name, draw in FIGURES.items() if name != "importance"}
    assert len(drawn["best_so_far"]["value"].x) == 1980
    assert len(drawn["best_so_far"]["failed"].x) == 20
    good = np.arange(2000) % 100 != 99
    np.testing.assert_allclose(drawn["best_so_far"]["best so far"].y[-1], values[good].min())
    dots = drawn["fit"]["candidate, 95 % interval"]
    distinct, counts = np.unique(ids[good], return_counts=True)
    sums = np.bincount(ids[good], values[good])[distinct] / counts
    np.testing.assert_allclose(dots.x[np.argsort([int(text) for text in dots.text])], sums)


def test_fit_over_a_box_with_names():
    made = ma.Optimizer(ma.Box(x=(0.0, 1.0), y=["a", "b"]), seed=0)
    made.tell([{"x": 0.1, "y": "a"}, {"x": 0.2, "y": "b"}, {"y": "a", "x": 0.1}], [1.0, 2.0, 3.0])
    drawn = traces(plots.fit(made))["candidate, 95 % interval"]
    assert sorted(drawn.x) == [2.0, 2.0]
    assert sorted(drawn.customdata[:, 2]) == [1, 2]
