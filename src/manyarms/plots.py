"""Plotly figures of an optimizer. Plotly is imported when the first figure is drawn."""

from collections.abc import Sequence
from html import escape
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from manyarms.campaign.answers import Answers
from manyarms.campaign.trials import CandidateId, Trial
from manyarms.checks import real
from manyarms.errors import Advice, ParameterError, StateError, shortened
from manyarms.optimizer import Optimizer
from manyarms.typing import Array

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

__all__ = ["best_so_far", "candidates", "fit", "importance", "regret", "slices"]

BLUE = "#0072b2"
"""Of Okabe and Ito's palette, whose colours the colour-blind can tell apart."""
ORANGE = "#d55e00"
"""Of the same palette."""
GREY = "#6e6e6e"
"""What is in the background."""
CROWDED = 300
"""Points from which they are drawn small and faint: they overlap in a figure of 700 pixels."""
NUMBERED = 9
"""Columns of a heat map up to which its numbers fit into the cells."""
LONGEST_LABEL = 24
"""Characters of an id or of a column's name beside an axis; hovering shows all."""
DECADES = 500
"""Ratio of largest to smallest value from which a logarithmic axis has ticks at powers of ten only:
ticks at 2 and 5 as well would stand too close."""


def best_so_far(optimizer: Optimizer) -> "Figure":
    """Every value told and the best so far, by the number of the result from 1.

    Failed trials are marked at the axis.

    Parameters
    ----------
    optimizer : Optimizer
        One that was told at least one value.

    Returns
    -------
    plotly.graph_objects.Figure
        The figure.
    """
    trials, values, failed = _told(optimizer)
    number = _numbers(trials)
    ids = optimizer.pool.labels([trial.id for trial in trials])
    best = _best_so_far(optimizer, values)
    # Who had a value first: of equal keys a dict keeps the last, hence the reversed order.
    first = dict(zip(values[::-1].tolist(), ids[::-1], strict=True))
    figure = _figure("Best so far", "result", "value")
    figure.add_scatter(
        x=number,
        y=values,
        text=_texts(ids),
        hovertemplate="%{text}<br>result %{x}: %{y:.5g}<extra></extra>",
        mode="markers",
        marker={"color": GREY, "size": _dot(number), "opacity": 0.55},
        name="value",
    )
    figure.add_scatter(
        x=number,
        y=best,
        text=_texts([first[value] for value in best.tolist()]),
        hovertemplate="%{text}<br>best at %{x}: %{y:.5g}<extra></extra>",
        mode=_line(number),
        line={"color": BLUE, "width": 2.5, "shape": "hv"},
        name="best so far",
    )
    if failed:
        marker = {
            "color": ORANGE,
            "size": 8,
            "symbol": "x-thin",
            "line": {"color": ORANGE, "width": 2},
        }
        _at_axis(
            figure,
            _numbers(failed),
            _texts(optimizer.pool.labels([trial.id for trial in failed])),
            "failed",
            marker,
        )
    return figure


def regret(optimizer: Optimizer, best_value: float) -> "Figure":
    """Simple regret of the best value so far and average regret of all values.

    The values are those told, so noise may take either below zero. The axis is logarithmic where
    something is positive; what is not is left out of it, and the first result as good as
    `best_value` is marked at the axis.

    Parameters
    ----------
    optimizer : Optimizer
        One that was told at least one value.
    best_value : float
        The best true value, in the units of the values.

    Returns
    -------
    plotly.graph_objects.Figure
        The figure.
    """
    known = real(
        best_value, "best_value", "the best true value, a finite number in the units of the values"
    )
    trials, values, _ = _told(optimizer)
    ids = optimizer.pool.labels([trial.id for trial in trials])
    number = _numbers(trials)
    sign = 1.0 if optimizer.direction == "maximize" else -1.0
    # f(x⋆) − max f(x_s) and R_t/t, of values as told.
    simple = sign * (known - _best_so_far(optimizer, values))
    average = np.cumsum(sign * (known - values)) / np.arange(1, len(values) + 1)
    positive = np.concatenate([simple, average])
    positive = positive[positive > 0]
    is_log = len(positive) > 0
    figure = _figure("Regret", "result", "regret", yaxis=_log(positive) if is_log else None)
    for name, color, shape, loss in (
        ("of the best so far", BLUE, "hv", simple),
        ("average", ORANGE, "linear", average),
    ):
        figure.add_scatter(
            x=number,
            y=np.where(loss > 0, loss, np.nan) if is_log else loss,
            text=_texts(ids),
            hovertemplate=f"{name}: %{{y:.4g}}<br>result %{{x}}: %{{text}}<extra></extra>",
            mode=_line(number),
            line={"color": color, "width": 2.5, "shape": shape},
            name=name,
        )
    reached = np.flatnonzero(simple <= 0)[:1]
    if is_log and len(reached):
        marker = {"color": BLUE, "size": 11, "symbol": "star"}
        _at_axis(
            figure,
            number[reached],
            _texts(ids[reached[0] : reached[0] + 1]),
            "best value reached",
            marker,
        )
    return figure


def fit(optimizer: Optimizer, level: float = 0.95) -> "Figure":
    """Every candidate that was tried, as predicted from the results of all others
    (`Optimizer.left_out`), by the mean of its own values: how far the model can be trusted.

    Parameters
    ----------
    optimizer : Optimizer
        One that was told at least one value.
    level : float
        Probability of the intervals, which are those of the mean of the values.

    Returns
    -------
    plotly.graph_objects.Figure
        The figure.
    """
    predicted, told, counts = _known(optimizer).left_out(level)
    ends = [min(told.min(), predicted.mean.min()), max(told.max(), predicted.mean.max())]
    figure = _figure("Predicted and measured", "measured", "predicted from all others")
    figure.add_scatter(
        x=told,
        y=predicted.mean,
        error_y=_interval(predicted.mean, predicted.low, predicted.high, len(told)),
        text=_texts(optimizer.pool.labels(predicted.ids)),
        customdata=np.column_stack([predicted.low, predicted.high, counts]),
        hovertemplate="%{text}<br>predicted: %{y:.5g}, %{customdata[0]:.5g} to %{customdata[1]:.5g}"
        "<br>mean of %{customdata[2]}: %{x:.5g}<extra></extra>",
        mode="markers",
        marker={"color": BLUE, "size": _dot(told), "opacity": 0.8},
        name=f"candidate, {100 * level:g} % interval",
    )
    figure.add_scatter(
        x=ends,
        y=ends,
        mode="lines",
        line={"color": GREY, "width": 1.5, "dash": "dash"},
        hoverinfo="skip",
        name="equal",
    )
    return figure


def slices(optimizer: Optimizer, x: str | None = None, y: str | None = None) -> "Figure":
    """Posterior means over two columns, all else being as the recommended candidate has it, which
    is marked (`Optimizer.slice`).

    Parameters
    ----------
    optimizer : Optimizer
        One that was told at least one value.
    x, y : str, optional
        The columns; those with the largest effects where they are not given.

    Returns
    -------
    plotly.graph_objects.Figure
        The figure.
    """
    known = _known(optimizer)
    if not all(isinstance(name, str | None) for name in (x, y)):
        raise ParameterError(f"x and y must name columns, got {shortened((x, y))}")
    largest = [] if x and y else [name for name in known.effects() if name not in (x, y)]
    if len(largest) < (x is None) + (y is None):
        raise StateError("a slice needs two columns that have levels, and there are fewer")
    x = largest.pop(0) if x is None else x
    found = optimizer.slice(x, largest.pop(0) if y is None else y)
    rows, columns = found.mean.shape
    ticks = [
        {"tickvals": list(range(len(levels))), "ticktext": _short(levels), "showgrid": False}
        for levels in (found.x_levels, found.y_levels)
    ]
    height = 170 + max(90, 30 * rows)
    figure = _figure(
        f"{_short([found.x])[0]} and {_short([found.y])[0]}",
        _short([found.x])[0],
        _short([found.y])[0],
        xaxis=ticks[0],
        yaxis=ticks[1],
        height=height,
    )
    figure.update_layout(margin={"t": 45})  # no legend
    hover = np.array(
        [
            [f"{found.x} {left}, {found.y} {below}" for left in found.x_levels]
            for below in found.y_levels
        ]
    )
    figure.add_heatmap(
        z=found.mean,
        colorscale="Viridis",
        reversescale=optimizer.direction == "minimize",
        colorbar={"thickness": 12, "outlinewidth": 0},
        customdata=[_texts(row) for row in hover.tolist()],
        hovertemplate="%{customdata}: %{z:.5g}<extra></extra>",
        texttemplate="%{z:.3g}" if columns <= NUMBERED else "",
        xgap=1,
        ygap=1,
    )
    left, below = found.at
    figure.add_shape(
        type="rect",
        x0=left - 0.5,
        x1=left + 0.5,
        y0=below - 0.5,
        y1=below + 0.5,
        line={"color": ORANGE, "width": 3},
        fillcolor="rgba(0, 0, 0, 0)",
        opacity=1,
    )
    return figure


def candidates(optimizer: Optimizer, k: int = 20, level: float = 0.95) -> "Figure":
    """Intervals of the k candidates of best posterior mean, the best on top.

    Candidates that were tried are filled, others hollow.

    Parameters
    ----------
    optimizer : Optimizer
        One that was told at least one value.
    k : int
        How many candidates.
    level : float
        Probability of the intervals.

    Returns
    -------
    plotly.graph_objects.Figure
        The figure.
    """
    # Called for its error: without a value there is nothing to show.
    _told(optimizer)
    top = optimizer.top(k, level)
    if not top:
        raise StateError("no candidate is left to show: all are retired or failed; add candidates")
    labels = optimizer.pool.labels([each.id for each in top])
    rank = np.arange(1, len(top) + 1)
    # The range runs downwards, so that the best is on top.
    ticks = {
        "tickvals": rank,
        "ticktext": _short(labels),
        "range": [len(top) + 0.7, 0.3],
        "ticks": "",
    }
    title = "Top candidate" if len(top) == 1 else f"Top {len(top)} candidates"
    figure = _figure(
        title, f"value, {100 * level:g} % interval", "", yaxis=ticks, height=150 + 22 * len(top)
    )
    was_tried = np.array([each.n_results > 0 for each in top])
    mean, low, high, counts = np.array(
        [[each.mean, each.low, each.high, each.n_results] for each in top]
    ).T
    for some, name, color, symbol in (
        (was_tried, "tried", BLUE, "circle"),
        (~was_tried, "not tried", ORANGE, "circle-open"),
    ):
        if some.any():
            figure.add_scatter(
                x=mean[some],
                y=rank[some],
                error_x=_interval(mean[some], low[some], high[some], 0) | {"color": color},
                text=_texts([labels[i] for i in np.flatnonzero(some)]),
                customdata=np.column_stack([low, high, counts])[some],
                hovertemplate="%{text}<br>%{x:.5g}, %{customdata[0]:.5g} to %{customdata[1]:.5g}"
                "<br>values told: %{customdata[2]}<extra></extra>",
                mode="markers",
                marker={
                    "color": color,
                    "size": 9,
                    "symbol": symbol,
                    "line": {"width": 2, "color": color},
                },
                name=name,
            )
    return figure


def importance(optimizer: Optimizer) -> "Figure":
    """What the values depend on most: one over the learned lengthscale of every column.

    Lengths of numbers and of categories are not in one unit: where there are both, the colours tell
    them apart.

    Parameters
    ----------
    optimizer : Optimizer
        One that learns a lengthscale for each column.

    Returns
    -------
    plotly.graph_objects.Figure
        The figure, the largest bar on top.
    """
    shares = _known(optimizer).importance
    coded = {feature.name for feature in optimizer.pool.features if feature.kind == "categorical"}
    both = 0 < len(coded) < len(shares)  # then one scale would compare what cannot be
    label = (
        "1 / lengthscale; compare numbers (blue) and categories (orange) among themselves"
        if both
        else "1 / lengthscale"
    )
    rank = np.arange(1, len(shares) + 1)
    sizes = list(shares.values())
    # The range runs downwards, so that the largest is on top.
    ticks = {
        "tickvals": rank,
        "ticktext": _short(list(shares)),
        "range": [len(shares) + 0.7, 0.3],
        "ticks": "",
    }
    figure = _figure("Importance", label, "", yaxis=ticks, height=115 + 26 * len(shares))
    figure.update_layout(margin={"t": 45})  # no legend
    figure.add_bar(
        x=sizes,
        y=rank,
        orientation="h",
        text=[f"{size:.3g}" for size in sizes],
        textposition="outside",
        cliponaxis=False,
        customdata=_texts(list(shares)),
        hovertemplate="%{customdata}: %{x:.4g}<extra></extra>",
        marker={"color": [ORANGE if name in coded else BLUE for name in shares] if both else BLUE},
        width=0.65,
    )
    return figure


def _figure(
    title: str, x: str, y: str, *, xaxis: Any = None, yaxis: Any = None, height: int = 440
) -> Any:
    """An empty figure in the common style."""
    # Imported here: `import manyarms.plots` costs nothing.
    graph_objects = import_module("plotly.graph_objects")
    common = {"showgrid": True, "gridcolor": "#ececec", "zeroline": False, "automargin": True}
    return graph_objects.Figure(
        layout={
            "template": "simple_white",
            "title": {
                "text": title,
                "x": 0,
                "xref": "paper",
                "y": 1,
                "yref": "container",
                "yanchor": "top",
                "pad": {"t": 16},
            },
            "xaxis": {**common, "title": {"text": x}, **(xaxis or {})},
            "yaxis": {**common, "title": {"text": y}, **(yaxis or {})},
            "legend": {
                "orientation": "h",
                "x": 0,
                "y": 1,
                "yanchor": "bottom",
                "traceorder": "normal",
            },
            "hovermode": "closest",
            "height": height,
            "margin": {"l": 70, "r": 30, "t": 80, "b": 60},
        }
    )


def _at_axis(figure: Any, x: Array, text: list[str], name: str, marker: dict[str, Any]) -> None:
    """Marks on the horizontal axis, wherever the other one is zoomed to."""
    # A second axis from 0 to 1 over the first, on which 0 is always the bottom.
    figure.update_layout(
        yaxis2={"overlaying": "y", "range": [0, 1], "fixedrange": True, "visible": False}
    )
    hover = f"%{{text}}<br>result %{{x}}: {name}<extra></extra>"
    figure.add_scatter(
        x=x,
        y=np.zeros(len(x)),
        yaxis="y2",
        text=text,
        hovertemplate=hover,
        mode="markers",
        marker=marker,
        cliponaxis=False,
        name=name,
    )


def _known(optimizer: Any) -> Any:
    """What was given, which must answer as an optimizer does."""
    if not isinstance(optimizer, Answers):
        raise ParameterError(
            f"optimizer must be an Optimizer or a Study, got {shortened(optimizer)}"
        )
    return optimizer


def _told(optimizer: Optimizer) -> tuple[list[Trial], Array, list[Trial]]:
    """The trials that gave a value, oldest first, and the values; and those that failed."""
    history = _known(optimizer).history
    trials = [trial for trial in history if not trial.failed]
    if not trials:
        raise StateError("no value was told yet", Advice("call {} first", "tell()"))
    values = np.array([trial.value for trial in trials], dtype=np.float64)
    return trials, values, [trial for trial in history if trial.failed]


def _best_so_far(optimizer: Optimizer, values: Array) -> Array:
    best = np.maximum if optimizer.direction == "maximize" else np.minimum
    return np.asarray(best.accumulate(values))


def _numbers(trials: Sequence[Trial]) -> Array:
    """Numbers of the results, from 1."""
    return np.array([trial.number + 1 for trial in trials])


def _line(x: Array) -> str:
    """A line of one point would not be seen."""
    return "lines" if len(x) > 1 else "markers"


def _dot(x: Array) -> int:
    """Size of markers."""
    return 6 if len(x) < CROWDED else 4


def _log(values: Array) -> dict[str, Any]:
    """A logarithmic axis for positive values, its ticks written out: 1, 2, 5, 10, …, or only powers
    of ten."""
    few = float(values.max() / values.min()) < DECADES
    return {"type": "log", "tickformat": "~g", "dtick": "D2" if few else 1}


def _interval(mean: Array, low: Array, high: Array, n: int) -> dict[str, Any]:
    """Error bars between the ends, fainter where there are many."""
    shade = "rgba(0, 114, 178, 0.45)" if n < CROWDED else "rgba(0, 114, 178, 0.25)"  # of BLUE
    return {
        "array": high - mean,
        "arrayminus": mean - low,
        "symmetric": False,
        "width": 0,
        "thickness": 1.5,
        "color": shade,
    }


def _texts(names: Sequence[CandidateId]) -> list[str]:
    """Names as Plotly shows them unchanged: it reads tags."""
    return [escape(str(name), quote=False) for name in names]


def _short(names: Sequence[Any]) -> list[str]:
    """Names that fit beside an axis; those that begin alike show their ends, too."""
    texts = [str(name) for name in names]
    starts = [_cut(text, LONGEST_LABEL - 1, 0) for text in texts]
    half = LONGEST_LABEL // 2
    both = [_cut(text, half, half - 1) for text in texts]
    return _texts(
        [
            other if starts.count(start) > 1 else start
            for start, other in zip(starts, both, strict=True)
        ]
    )


def _cut(text: str, first: int, last: int) -> str:
    """A text that is too long, by so many of its first and of its last characters."""
    if len(text) <= LONGEST_LABEL:
        return text
    return f"{text[:first]}…{text[len(text) - last :]}"
