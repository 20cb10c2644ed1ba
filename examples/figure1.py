"""Figure 1 of the BKB paper: a sketched variance must not starve where nothing was observed.

    python examples/figure1.py figure1.png

f is drawn from a GP on [0, 1] with k(x, x′) = exp(−100 (x − x′)²) and evaluated only in [0, ½]. BKB
and the subset of regressors (SoR) share one dictionary and one mean. They differ in a single term
of the variance: SoR puts zᵀz in place of k(x, x) and so loses the residual r = k(x, x) − zᵀz, which
is all there is far from the dictionary.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.linalg import eigh

import manyarms as ma
from manyarms.typing import Array

TIMES = (6, 63, 215)
KERNEL = ma.kernels.RBF(1 / np.sqrt(200))
NOISE = 0.1
WIDTH = 3
"""Standard deviations on either side of the mean that a band holds."""

GREY, BLUE, VERMILION = "#6e6e6e", "#0072b2", "#d55e00"
HEIGHT = 4.2


class Snapshot(NamedTuple):
    """f and its posteriors on the grid x (A,) after t evaluations."""

    x: Array
    f: Array
    observed: Array  # (t,)
    rewards: Array  # (t,)
    inducing: Array  # (m,)
    bkb: ma.Prediction
    sor: ma.Prediction
    exact: ma.Prediction


def draw_function(X: Array, rng: np.random.Generator) -> Array:
    """f ~ N(0, K) at the rows of X, through the eigenvectors of K: it is singular to rounding."""
    values, vectors = eigh(KERNEL(X, X))
    return np.asarray(vectors @ (np.sqrt(np.maximum(values, 0.0)) * rng.standard_normal(len(X))))


def snapshots(times: Sequence[int] = TIMES, *, n_arms: int = 1001, seed: int = 0) -> list[Snapshot]:
    """The posteriors at each of the `times`; evaluations are uniform in [0, ½]."""
    rng = np.random.default_rng(seed)
    X = np.linspace(0, 1, n_arms)[:, None]
    x, f = X[:, 0], draw_function(X, rng)
    arms = rng.integers(n_arms // 2 + 1, size=max(times))
    rewards = f[arms] + NOISE * rng.standard_normal(len(arms))
    bkb = ma.BKB(X, KERNEL, regularization=NOISE**2, rule=ma.Sampled(5.0), seed=seed)
    exact = ma.GPUCB(X, KERNEL, regularization=NOISE**2)
    taken = []
    for t, (arm, reward) in enumerate(zip(arms, rewards, strict=True), start=1):
        for policy in (bkb, exact):
            policy.observe([arm], [reward])
        if t in times:
            sor = ma.baselines.SoR(X, KERNEL, inducing=bkb.inducing, regularization=NOISE**2)
            sor.observe(arms[:t], rewards[:t])
            posteriors = (bkb.predict(), sor.predict(), exact.predict())
            taken.append(Snapshot(x, f, x[arms[:t]], rewards[:t], x[bkb.inducing], *posteriors))
    return taken


def coverage(f: Array, posterior: ma.Prediction) -> float:
    """Share of the grid on which f is within `WIDTH` standard deviations of the mean."""
    return float(np.mean(np.abs(f - posterior.mean) <= WIDTH * posterior.std))


def draw(taken: Sequence[Snapshot], path: Path) -> None:
    """One column for each snapshot, BKB above SoR, the exact band in both."""
    with rc_context(
        {"font.size": 9, "axes.titlesize": 9, "axes.titlelocation": "left", "axes.axisbelow": True}
    ):
        figure = Figure(figsize=(3.5 * len(taken), 5.6), layout="constrained")
        axes = figure.subplots(2, len(taken), sharex=True, sharey=True, squeeze=False)
        for (above, below), snapshot in zip(axes.T, taken, strict=True):
            _draw_panel(above, snapshot, snapshot.bkb, "BKB", BLUE)
            _draw_panel(below, snapshot, snapshot.sor, "SoR", VERMILION)
            heading = (
                f"{len(snapshot.observed)} evaluations, {len(snapshot.inducing)} inducing points"
            )
            above.annotate(heading, (0, 1.15), xycoords="axes fraction", weight="bold", size=10)
            below.set_xlabel("x")
        axes[0, 0].set(xlim=(0, 1), ylim=(-HEIGHT, HEIGHT), ylabel="BKB: variance  r + λ zᵀV⁻¹z")
        axes[1, 0].set(
            ylabel="SoR: variance  λ zᵀV⁻¹z",
            xticks=[0, 0.25, 0.5, 0.75, 1],
            xticklabels=["0", "¼", "½", "¾", "1"],
        )
        legend = sorted({line.get_label(): line for ax in axes[:, 0] for line in ax.lines}.items())
        labels, handles = zip(*legend, strict=True)
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
        figure.savefig(path, dpi=150)


def _draw_panel(
    ax: Axes, snapshot: Snapshot, posterior: ma.Prediction, name: str, colour: str
) -> None:
    x = snapshot.x
    mean, std = posterior
    exact_mean, exact_std = snapshot.exact
    covered = coverage(snapshot.f, posterior)
    ax.set_title(f"sd {np.interp(0.9, x, std):.2f} at x = 0.9; the band covers {covered:.0%} of f")
    ax.grid(color="#e6e6e6", linewidth=0.6)
    ax.spines[["top", "right"]].set_visible(False)
    ax.fill_between(
        x, mean - WIDTH * std, mean + WIDTH * std, color=colour, alpha=0.25, linewidth=0
    )
    ax.plot(
        snapshot.observed,
        snapshot.rewards,
        "o",
        color=GREY,
        alpha=0.6,
        ms=3,
        mew=0,
        label="evaluations",
    )
    ax.plot(x, mean, color=colour, lw=1.8, label=f"{name} mean ± {WIDTH} sd")
    ax.plot(x, snapshot.f, color="black", lw=1.1, label="f")
    ax.plot(
        snapshot.inducing,
        np.full(len(snapshot.inducing), 0.3 - HEIGHT),
        "|",
        color="black",
        ms=7,
        label="inducing points",
    )
    for side in (-WIDTH, WIDTH):
        ax.plot(
            x,
            exact_mean + side * exact_std,
            color=GREY,
            lw=0.9,
            ls="--",
            label=f"exact mean ± {WIDTH} sd",
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "path",
        nargs="?",
        type=Path,
        default=Path("figure1.png"),
        help="picture to write (%(default)s)",
    )
    draw(snapshots(), parser.parse_args().path)


if __name__ == "__main__":
    main()
