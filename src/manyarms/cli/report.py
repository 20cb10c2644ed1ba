"""The page of a report: one HTML file with the script of its figures inside. What users wrote is
text, never markup."""

from collections.abc import Iterable, Sequence
from html import escape
from importlib import import_module
from typing import Any

from manyarms.cli.knowledge import HEADER, best_lines
from manyarms.cli.output import shown
from manyarms.cli.tables import beside
from manyarms.errors import StateError
from manyarms.study import Study

STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; color: #1b1b1b; background: #f5f5f3; margin: 0; }
main { max-width: 62rem; margin: 0 auto; padding: 1.5rem; }
h1 { font-size: 1.5rem; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 0 0 .6rem; }
header p { color: #555; margin: .2rem 0 1.2rem; }
section { background: #fff; border: 1px solid #e2e2de; border-radius: 8px;
  padding: 1.1rem 1.3rem; margin: 0 0 1rem; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(7rem, 1fr));
  gap: 1rem; margin: 0; align-items: end; }
.tiles dt { color: #555; font-size: .85rem; }
.tiles dd { margin: 0; font-size: 1.3rem; overflow-wrap: anywhere; }
.best { font-size: 1.3rem; overflow-wrap: anywhere; margin: 0; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .92rem; }
th { text-align: left; color: #555; font-weight: 600; }
th, td { white-space: nowrap; padding: .2rem 1.2rem .2rem 0; vertical-align: top;
  border-bottom: 1px solid #eee; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
"""
POLICY = (  # nothing from elsewhere; Plotly's script, inline, makes pictures as blobs
    "default-src 'none'; script-src 'unsafe-inline' blob:; style-src 'unsafe-inline'; "
    "img-src data: blob:; worker-src blob:"
)
"""The page loads nothing."""


def script() -> str:
    """Plotly's, to be put into a page; StateError where it is not installed."""
    try:
        return str(import_module("plotly.offline").get_plotlyjs())
    except ImportError as error:
        raise StateError(
            "pictures need Plotly, which is not installed: pip install 'manyarms[plots]'"
        ) from error


def page(
    name: str,
    study: Study,
    state: dict[str, Any],
    top: Sequence[dict[str, Any]],
    last: Sequence[dict[str, Any]],
    figures: Iterable[Any],
    level: float,
) -> str:
    """The page; `name` is where the study is, `last` the latest result if there is one."""
    latest = f"latest result {last[0]['time']} by {last[0]['worker']}" if last else "no results yet"
    body = [
        f"<header><h1>{_text(name)}</h1><p>{_text(study.direction)} the value; "
        f"{_text(latest)}</p></header>",
        _section("Summary", _summary(state)),
        *_known(study, state, top, level),
        *(
            _section(
                "",
                figure.to_html(
                    full_html=False, include_plotlyjs=False, config={"displayModeBar": False}
                ),
            )
            for figure in figures
        ),
        *_pending(study, state["pending"]),
        _section("Candidates", _table(["column", "type"], study.pool.columns.items())),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{_text(name)}</title><style>{STYLE}</style><script>{script()}</script></head>"
        f"<body><main>{''.join(body)}</main></body></html>\n"
    )


def _summary(state: dict[str, Any]) -> str:
    model = state["model"] or {}
    tiles = {
        "candidates": f"{state['candidates']:,}",
        "results": f"{state['results']:,}",
        "failed": f"{state['failed']:,}",
        "pending": f"{len(state['pending']):,}",
        "inducing": f"{model['inducing']:,}" if model else "–",
        "effective dimension": shown(model["effective_dimension"]) if model else "–",
        "noise": shown(model["noise"]) if model else "–",
    }
    parts = (f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in tiles.items())
    return f'<dl class="tiles">{"".join(parts)}</dl>'


def _known(
    study: Study, state: dict[str, Any], top: Sequence[dict[str, Any]], level: float
) -> list[str]:
    best = state["best"]
    if not best:
        return [_section("Best so far", "<p>No values were told yet.</p>")]
    lines = "".join(f"<p>{_text(line)}</p>" for line in best_lines(best, level))
    recommended = best["recommended"]
    name = f"{_text(recommended['id'])}: <b>{shown(recommended['estimate'])}</b>"
    columns = best["columns"].items()
    paragraphs = "".join(
        f"<p>{_text(line)}</p>" for line in state["certificate"]["text"].split("\n")
    )
    names = list(study.pool.names)
    rows = [
        [*each.values(), *(row[name] for name in names)]
        for each, row in zip(top, study.pool.rows([t["id"] for t in top]), strict=True)
    ]
    return [
        _section(
            "Best so far",
            f'<p class="best">{name}</p>{lines}' + _table(["column", "value"], columns),
        ),
        _section("How sure that is", paragraphs),
        _section(
            f"The best {len(top)} by estimate, tried or not",
            _table(["id", *HEADER, *names], rows),
        ),
    ]


def _pending(study: Study, pending: Sequence[dict[str, Any]]) -> list[str]:
    names, columns = beside(study.pool, [each["id"] for each in pending])
    rows = [
        [each["id"], *cells, each["worker"], each["until"] or "no end"]
        for each, cells in zip(pending, columns, strict=True)
    ]
    header = ["candidate", *names, "worker", "until"]
    return [_section("Pending", _table(header, rows))] if rows else []


def _section(title: str, body: str) -> str:
    return f"<section>{f'<h2>{_text(title)}</h2>' if title else ''}{body}</section>"


def _table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    rows = [list(row) for row in rows]
    numeric = [
        bool(rows) and all(isinstance(row[i], int | float) for row in rows)
        for i in range(len(header))
    ]
    marked = [' class="number"' if each else "" for each in numeric]
    head = "".join(
        f"<th{mark}>{_text(name)}</th>" for name, mark in zip(header, marked, strict=True)
    )
    lines = (
        "".join(
            f"<td{mark}>{_text(shown(cell))}</td>" for cell, mark in zip(row, marked, strict=True)
        )
        for row in rows
    )
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f'<div class="scroll"><table><tr>{head}</tr>{body}</table></div>'


def _text(value: Any) -> str:
    return escape(str(value))
