"""Pictures of a study: plot, report.

The page of a report is one HTML file with the script of its figures inside. What users wrote is
text, never markup: the template `report.html` escapes all it is given.
"""

import time
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.resources import files
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from manyarms import plots
from manyarms.campaign.insight import LEVELS_SHOWN, Effect
from manyarms.cli.app import InputError, StudyAt, opened
from manyarms.cli.knowledge import (
    Level,
    best_lines,
    listed,
    model_lines,
    pending_of,
    plain,
    recipe_of,
    results_of,
    state_of,
)
from manyarms.cli.mistakes import changes_of, listed_changes
from manyarms.cli.output import ALREADY_DONE, Answer, clock, count, moment, new_file, percent, shown
from manyarms.cli.tables import HEADER, beside, goal, name_of, not_used
from manyarms.errors import StateError

FIGURES: dict[str, Callable[[Any], Any]] = {
    "best": plots.best_so_far,
    "top": plots.candidates,
    "fit": plots.fit,
    "slices": plots.slices,
    "importance": plots.importance,
}
"""Figures by the word that asks for them."""
PICTURES = (".png", ".svg", ".pdf", ".jpg", ".webp")
"""Endings of files that Kaleido can write."""
MOST_RESULTS = 5000
"""Results that are listed, the latest: a browser shows a table of so many rows at once."""
UPRIGHT_COLUMNS = 9
"""Columns of a table, at most, that fit on an upright sheet of paper; a wider table is turned."""
UNBROKEN = len("2026-12-31 23:59")
"""Characters of a cell that is not broken into lines on paper."""
SLICED = 3
"""Columns of which every two make a slice, those with the largest effects."""


def plot(
    study: StudyAt,
    output: Annotated[
        Path,
        typer.Option(
            "-o", "--output", help="File to write: .html; or .png, .svg, .pdf.", show_default=False
        ),
    ],
    kind: Annotated[
        str,
        typer.Option(
            help="best (values and the best so far), top (intervals), fit (each candidate as "
            "predicted from all others), slices (two columns), importance (of the columns), "
            "sketch (size of the model)."
        ),
    ] = "best",
) -> Answer:
    """Draw a study.

    Pictures other than .html need Kaleido (pip install kaleido). A page is readable without
    network.

    [bold]Example:[/bold]
      manyarms plot lab.db --kind top -o top.html
    """
    if kind not in FIGURES:
        raise InputError(f"--kind must be one of {', '.join(FIGURES)}, got {kind!r}")
    suffix = output.suffix.lower()
    if suffix not in (".html", *PICTURES):
        raise InputError(f"plot writes .html, {', '.join(PICTURES)}, got {output.name!r}")
    with opened(study) as known, new_file(output, force=True) as draft:
        figure = FIGURES[kind](known)
        if suffix == ".html":
            figure.write_html(draft, include_plotlyjs=True)
        else:
            try:
                figure.write_image(draft, format=suffix[1:], scale=2)
            except (ImportError, ValueError, RuntimeError) as error:
                reason = str(error).strip().split("\n")[0]
                raise StateError(
                    f"{suffix} needs Kaleido and a browser ({reason}); pip install kaleido, or "
                    "write .html"
                ) from error
    return Answer.of({"written": str(output)}, f"Wrote {output}.", kept=ALREADY_DONE)


def report(
    study: StudyAt,
    output: Annotated[Path, typer.Option("-o", "--output", help="Page to write, .html.")] = Path(
        "report.html"
    ),
    k: Annotated[
        int,
        typer.Option("-k", "--number", min=1, max=1000, help="Candidates in the list of the best."),
    ] = 20,
    level: Level = 0.95,
) -> Answer:
    """Write all that is known about a study to one page.

    The best candidate, what is pending, what each level of each column does, two columns at a time,
    how well the model predicts, the list of the best, and all results. It is one file, readable in
    any browser without network, and can be printed.

    [bold]Example:[/bold]
      manyarms report lab.db -o report.html
    """
    if output.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"report writes a page, .html, got {output.name!r}")
    with opened(study) as known, new_file(output, force=True) as draft:
        draft.write_text(page(name_of(study), known, k, level), encoding="utf-8")
    return Answer.of({"written": str(output)}, f"Wrote {output}.", kept=ALREADY_DONE)


class _Table(NamedTuple):
    """A table of the page."""

    header: Sequence[str]
    rows: Sequence[Sequence[Any]]

    @property
    def marks(self) -> list[Any]:
        """How the cells of each column are set: numbers to the right, short ones on one line."""
        columns = list(zip(*self.rows, strict=True)) or [()] * len(self.header)
        return [_markup(_class(cells)) for cells in columns]

    @property
    def width(self) -> Any:
        """The class of the section."""
        return _markup(' class="wide"' if len(self.header) > UPRIGHT_COLUMNS else "")


def _class(cells: Sequence[Any]) -> str:
    """How the cells of a column are set."""
    # Numbers, but for those that are missing or of a trial that failed.
    there = [cell for cell in cells if cell not in (None, "failed")]
    if there and all(isinstance(cell, int | float) for cell in there):
        return ' class="number"'
    return ' class="short"' if max((len(str(c)) for c in cells), default=0) <= UNBROKEN else ""


def page(name: str, study: Any, k: int, level: float) -> str:
    """All that is known of a study; `name` is what it is called."""
    pool = study.pool
    state = state_of(study, level, None)
    results, events = results_of(study, MOST_RESULTS)
    last = results[-1] if results else None
    header, rows = listed(results, pool)
    pending_header, pending = pending_of(pool, state["pending"])
    model = state["model"]
    title = "All results, the latest first"
    if state["results"] > MOST_RESULTS:
        title = f"The latest {MOST_RESULTS:,} of {state['results']:,} results"
    jinja2 = import_module("jinja2")
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["shown"] = shown
    template = environment.from_string(
        files("manyarms.cli").joinpath("report.html").read_text(encoding="utf-8")
    )
    written: str = template.render(
        **dict.fromkeys(("best", "effects", "slices", "fit", "model"), ())
        | {"top": _Table([], [])}
        | (_known(study, state, k, level) if state["best"] else {}),
        name=name,
        script=import_module("plotly.offline").get_plotlyjs(),
        state=state,
        goal=goal(study),
        latest=f"latest result {clock(last['time'])} by {last['worker']}"
        if last
        else "no results yet",
        written=clock(moment(time.time())),
        not_used=not_used(pool),
        tiles={
            "candidates": f"{state['candidates']:,}",
            "results": f"{state['results']:,}",
            "failed": f"{state['failed']:,}",
            "pending": f"{len(pending):,}",
            "noise (SD of a result)": shown(model["noise"]) if model else "–",
        },
        pending=_Table(["candidate", *pending_header], pending),
        progress=_drawn(plots.best_so_far, study),
        results=_Table(header, rows[::-1]),
        results_title=title,
        changes=_Table(*listed_changes(changes_of(events, pool))),
        columns=_Table(
            ["column", "type", "by the model"],
            [
                [name, kind, f"NOT USED: {pool.unused[name]}" if name in pool.unused else "used"]
                for name, kind in pool.columns.items()
            ],
        ),
        level=percent(level),
    )
    return written


def _known(study: Any, state: dict[str, Any], k: int, level: float) -> dict[str, Any]:
    """What there is once values were told."""
    effects = study.effects(level)
    found = study.top(k, level)
    top = [plain(each, study.pool) for each in found]
    more, cells = beside(study.pool, [each["id"] for each in top])
    # Names of levels fit at the left better than below: the column with more of them goes there.
    largest = sorted(list(effects)[:SLICED], key=lambda name: len(effects[name]))
    checked = study.left_out(level)
    n = len(checked.measured)
    return {
        "best": best_lines(state["best"], level),
        "recipe": _Table(*recipe_of(study.pool, state["best"])),
        "top": _Table(
            ["id", *HEADER, *more],
            [[*row.values(), *rest] for row, rest in zip(top, cells, strict=True)],
        ),
        "effects": [_effect(*item) for item in effects.items()],
        "slices": [_html(plots.slices(study, x, y)) for x, y in combinations(largest, 2)],
        "fit": _drawn(plots.fit, study),
        "checked": f"{checked.n_inside:,} of {count(n, 'measured candidate')} "
        f"{'lies' if n == 1 else 'lie'} inside the {percent(level)} interval that is predicted "
        "without the results of that candidate.",
        "model": model_lines(state),
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
