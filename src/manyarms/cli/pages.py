"""Pictures of a study: plot, report."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from manyarms import plots
from manyarms.cli.app import AsJson, InputError, StudyAt, opened
from manyarms.cli.knowledge import Level
from manyarms.cli.output import ALREADY_DONE, answer, name_of, new_file
from manyarms.cli.report import page
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
    as_json: AsJson = False,
) -> None:
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
    answer({"written": str(output)}, as_json, f"Wrote {output}.", kept=ALREADY_DONE)


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
    as_json: AsJson = False,
) -> None:
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
    answer({"written": str(output)}, as_json, f"Wrote {output}.", kept=ALREADY_DONE)
