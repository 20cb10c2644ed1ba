"""The page of a report: one HTML file with the script of its figures inside. What users wrote is
text, never markup: the template `report.html` escapes all it is given."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from importlib.resources import files
from itertools import combinations
from typing import Any

from manyarms import plots
from manyarms.campaign.insight import LEVELS_SHOWN, CrossValidated, Effect
from manyarms.cli.changes import changes_of
from manyarms.cli.knowledge import (
    HEADER,
    OPTIONAL,
    RESULT,
    best_lines,
    has_any,
    model_lines,
    plain,
    results_of,
    state_of,
)
from manyarms.cli.output import clock, count, moment, percent, shown
from manyarms.cli.tables import beside, goal, not_used, unused
from manyarms.errors import StateError
from manyarms.study import Study

MOST_RESULTS = 5000
"""Results that are listed, the latest: a browser shows a table of so many rows at once."""
UPRIGHT_COLUMNS = 9
"""Columns of a table, at most, that fit on an upright sheet of paper; a wider table is turned."""
UNBROKEN = len("2026-12-31 23:59")
"""Characters of a cell that is not broken into lines on paper."""
SLICED = 3
"""Columns of which every two make a slice, those with the largest effects."""


@dataclass(frozen=True)
class _Table:
    """A table of the page; columns of numbers are set to the right."""

    header: Sequence[str]
    rows: list[list[Any]]

    @cached_property
    def marks(self) -> list[Any]:
        """The class of each column's cells."""
        columns = list(zip(*self.rows, strict=True)) or [()] * len(self.header)
        return [_markup(_class(cells)) for cells in columns]

    @property
    def width(self) -> Any:
        """The class of the section."""
        return _markup(' class="wide"' if len(self.header) > UPRIGHT_COLUMNS else "")


def _class(cells: Sequence[Any]) -> str:
    """How the cells of a column are set."""
    if _is_numeric(cells):
        return ' class="number"'
    return ' class="short"' if max((len(str(c)) for c in cells), default=0) <= UNBROKEN else ""


def _is_numeric(cells: Sequence[Any]) -> bool:
    """All are numbers, but for those that are missing or of a trial that failed."""
    there = [cell for cell in cells if cell not in (None, "failed")]
    return bool(there) and all(isinstance(cell, int | float) for cell in there)


def page(name: str, study: Study, k: int, level: float) -> str:
    """All that is known of a study; `name` is what it is called."""
    state = state_of(study, level, None)
    results = results_of(study)
    last = results[-1] if results else None
    known = _known(study, state, k, level) if state["best"] else {}
    jinja2 = import_module("jinja2")
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["shown"] = shown
    template = environment.from_string(
        files("manyarms.cli").joinpath("report.html").read_text(encoding="utf-8")
    )
    empty = dict.fromkeys(("best", "effects", "slices", "fit", "model"), ())
    written: str = template.render(
        {
            **empty,
            "top": _Table([], []),
            "name": name,
            "script": import_module("plotly.offline").get_plotlyjs(),
            "state": state,
            "goal": goal(study),
            "latest": f"latest result {clock(last['time'])} by {last['worker']}"
            if last
            else "no results yet",
            "written": clock(moment(time.time())),
            "not_used": not_used(study.pool),
            "tiles": _tiles(state),
            "pending": _pending(study, state["pending"]),
            "progress": _drawn(plots.best_so_far, study),
            "results": _results(study, results[-MOST_RESULTS:]),
            "results_title": _results_title(len(results)),
            "changes": _changes(study),
            "columns": _columns(study),
            "level": percent(level),
            **known,
        }
    )
    return written


def _known(study: Study, state: dict[str, Any], k: int, level: float) -> dict[str, Any]:
    """What there is once values were told."""
    effects = study.effects(level)
    top = [plain(each) for each in study.top(k, level)]
    more, cells = beside(study.pool, [each["id"] for each in top])
    # Names of levels fit at the left better than below: the column with more of them goes there.
    largest = sorted(list(effects)[:SLICED], key=lambda name: len(effects[name]))
    return {
        "best": best_lines(state["best"], level),
        "recipe": _recipe(study, state["best"]),
        "top": _Table(
            ["id", *HEADER, *more],
            [[*row.values(), *rest] for row, rest in zip(top, cells, strict=True)],
        ),
        "effects": [_effect(*item) for item in effects.items()],
        "slices": [
            _html(plots.slices(study, x, y))  # type: ignore[arg-type]
            for x, y in combinations(largest, 2)
        ],
        "fit": _drawn(plots.fit, study),
        "checked": _checked(study.left_out(level), level),
        "model": model_lines(state),
    }


def _recipe(study: Study, best: dict[str, Any]) -> _Table:
    """The columns of the best candidates, one beside the other where there are two."""
    ids = list(dict.fromkeys([best["measured"]["id"], best["recommended"]["id"]]))
    names, columns = beside(study.pool, ids)
    return _Table(["column", *map(str, ids)], [*map(list, zip(names, *columns, strict=True))])


def _checked(found: CrossValidated, level: float) -> str:
    n = len(found.measured)
    return (
        f"{found.n_inside:,} of {count(n, 'measured candidate')} "
        f"{'lies' if n == 1 else 'lie'} inside the {percent(level)} interval that is predicted "
        "without the results of that candidate."
    )


def _tiles(state: dict[str, Any]) -> dict[str, str]:
    model = state["model"]
    return {
        "candidates": f"{state['candidates']:,}",
        "results": f"{state['results']:,}",
        "failed": f"{state['failed']:,}",
        "pending": f"{len(state['pending']):,}",
        "noise (SD of a result)": shown(model["noise"]) if model else "–",
    }


def _effect(name: str, effects: list[Effect]) -> dict[str, Any]:
    """The levels of a column, with a bar each on the scale of the column."""
    least = min(0.0, *(each.low for each in effects))
    most = max(0.0, *(each.high for each in effects))
    scale = 98 / ((most - least) or 1.0)

    def at(value: float) -> float:
        return round(1 + scale * (value - least), 2)

    rows = [
        {
            "level": shown(each.level),
            "n_results": each.n_results,
            "mean": f"{each.mean:+.3g}",
            "ends": f"{each.low:+.3g} to {each.high:+.3g}",
            "zero": at(0.0),
            "left": at(each.low),
            "width": round(at(each.high) - at(each.low), 2),
            "middle": round(at(each.mean) - 0.5, 2),
        }
        for each in effects
    ]
    full = len(effects) >= LEVELS_SHOWN
    more = f"The {LEVELS_SHOWN} levels with most results; there may be others." if full else ""
    return {"name": name, "rows": rows, "more": more}


def _pending(study: Study, pending: Sequence[dict[str, Any]]) -> _Table:
    names, columns = beside(study.pool, [each["id"] for each in pending])
    rows = [
        [each["id"], *cells, each["worker"], clock(each["until"])]
        for each, cells in zip(pending, columns, strict=True)
    ]
    return _Table(["candidate", *names, "worker", "until"], rows)


def _results(study: Study, results: list[dict[str, Any]]) -> _Table:
    """Results with the columns of their candidates, the latest first."""
    told = [name for name in RESULT if name not in OPTIONAL or has_any(results, name)]
    names, columns = beside(study.pool, [row["id"] for row in results])
    rows = [
        [*(clock(row[name]) if name == "time" else row[name] for name in told), *cells]
        for row, cells in zip(results, columns, strict=True)
    ]
    return _Table([*told, *names], rows[::-1])


def _changes(study: Study) -> _Table:
    """Corrections, and what was taken back, retired and restored."""
    changes = changes_of(study)
    header = list(changes[0]) if changes else []
    return _Table(header, [[*(each | {"time": clock(each["time"])}).values()] for each in changes])


def _results_title(n: int) -> str:
    if n > MOST_RESULTS:
        return f"The latest {MOST_RESULTS:,} of {n:,} results"
    return "All results, the latest first"


def _columns(study: Study) -> _Table:
    aside = unused(study.pool)
    rows = [
        [name, kind, f"NOT USED: {aside[name]}" if name in aside else "used"]
        for name, kind in study.pool.columns.items()
    ]
    return _Table(["column", "type", "by the model"], rows)


def _drawn(draw: Any, study: Any) -> str:
    """A figure as it stands in the page; nothing where there is nothing to draw yet."""
    try:
        return _html(draw(study))
    except StateError:
        return ""


def _html(figure: Any) -> str:
    html: str = figure.to_html(
        full_html=False,
        include_plotlyjs=False,
        config={"displayModeBar": False, "responsive": True},
    )
    return html


def _markup(text: str) -> Any:
    return import_module("markupsafe").Markup(text)
