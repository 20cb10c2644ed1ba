"""Experiment 6: how often f lies inside μ̃ ± β̃σ̃, for all arms and all steps, and what that costs.

    python benchmarks/experiments.py coverage [--seeds 100] [--budget 600]

A run is a line of coverage.jsonl in the folder of the runs. What is there is not run again. The
first table takes a fifth of the seeds that the second one takes.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple

import numpy as np
import pictures
from peers import Clock
from publishing import Options, publish
from scipy.stats import beta as beta_distribution
from summary import interval, of
from threadpoolctl import threadpool_limits

import manyarms as ma
from manyarms.equal import equal_rows
from manyarms.kernels.base import without_own

NOISE = 0.1  # ξ
DELTA = 0.1
NORM = 4.0
TOLERANCES = (0.3, 0.1, 0.03, 0.01, 0.003)
RADII = ("Certified", "LogDet", "Theory", "Bayes")
DEFAULT = ma.Inserted()
RBF = ma.kernels.RBF(0.25)
OTHER = {
    "RBF .5, d = 4": (ma.kernels.RBF(0.5), 4),
    "Matérn-5/2 .5, d = 3": (ma.kernels.Matern(0.5, nu=2.5), 3),
}
"""Kernels and dimensions beside RBF .25, d = 2."""
TEXT = """\
Arms are uniform on [0, 1]², f is a sum of 20 kernel bumps of norm {norm:g}, the kernel is RBF of lengthscale .25
and the noise ξ = {noise:g}, with λ = ξ² and δ = {delta:g}, unless a cell says otherwise. A run counts as inside if f
lies in μ̃ ± β̃σ̃ at all arms after every one of {steps} results. Brackets are 95 % intervals.

**The statement does not depend on the rule.** {few:,} arms, `Certified` (`Resampled` for dictionaries that are drawn
again). The last three columns show β̃ over the smallest β that would have covered f, in medians over runs: after the
last result, at the step where it is smallest, and at the step where it is largest. {verdict}
The second table leaves the term √(λη)F of `Certified` out: where W is chosen badly, f is then missed. In the third one
the kernel is k(x, y) + v·[x = y], and half of ‖f‖² is what the arms have of their own.

**What a valid radius costs.** {many:,} arms. Exact GP-UCB is the line `gpucb`; the last column compares with it under
the same radius. The seconds are those of the processor. |W| of `gpucb` is the number of arms pulled. `Bayes` is for f
drawn from the process, which a function of bounded norm is not: it promises nothing here."""


# --- Problems and rules


@dataclass(frozen=True)
class Draw:
    """f = Σ a_j k(·, c_j) of known norm, and a table of arms, which may have parts of their own."""

    kernel: Any  # without own parts
    arms: np.ndarray  # (A, d)
    centres: np.ndarray  # (20, d)
    a: np.ndarray  # (20,)
    own: np.ndarray  # (A,)

    @classmethod
    def of(cls, seed: int, n_arms: int, kernel: Any, d: int) -> "Draw":
        rng = np.random.default_rng([seed, 7])
        arms = rng.random((n_arms, d))
        centres = rng.random((20, d))
        a = rng.standard_normal(20)
        smooth, variance = without_own(kernel)
        norm = np.sqrt(a @ smooth(centres, centres) @ a)
        if not variance:
            return cls(smooth, arms, centres, a * NORM / norm, np.zeros(n_arms))
        # f = f_k + √v u, ‖f‖² = ‖f_k‖² + ‖u‖²: a half each.
        half = NORM / np.sqrt(2)
        u = rng.standard_normal(n_arms)
        own = np.sqrt(variance) * u * half / np.linalg.norm(u)
        return cls(smooth, arms, centres, a * half / norm, own)

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        values = self.kernel(rows, self.centres) @ self.a
        at, arms = equal_rows(rows, self.arms)
        values[at] += self.own[arms]
        return values


@dataclass(frozen=True)
class Coin(ma.Inserted):
    """After the first row, each enters W by a coin: neither its residual nor its reward matters."""

    chance: float = 0.2
    rng: Any = None  # the Generator of the policy, once it is known

    def prior(self, kernel: Any, arms: Any, regularization: float, noise: float, rng: Any) -> Any:
        rule = replace(self, rng=rng)
        return ma.Inserted.prior(rule, kernel, arms, regularization, noise, rng)

    def pays(self, left_out: float, explained: float) -> bool:
        return explained > 0 and self.rng.random() >= self.chance


@dataclass(frozen=True)
class SmallestFirst(ma.Inserted):
    """After the first row, only those enter of which W leaves out little: the wrong way round."""

    largest: float = 10.0  # ωr/λ

    def pays(self, left_out: float, explained: float) -> bool:
        return explained > 0 and left_out > self.largest


class Unbiased(ma.Certified):
    """`Certified` as if nothing were left out: its term √(λη)F is missing, so it promises nothing."""

    def __call__(self, evidence: Any) -> float:
        return super().__call__(replace(evidence, largest=lambda: 0.0))


class Figures(NamedTuple):
    """What is kept of a run."""

    inside: bool
    regret: float
    inducing: int
    left_out: float  # e
    seconds: float
    last: float  # β̃ over the smallest β that covers, after the last result
    tightest: float  # the smallest of these over the steps
    loosest: float


@dataclass(frozen=True)
class Cell:
    """How a run goes."""

    system: str = "bkb"
    what: str = "default"
    rule: Any = DEFAULT
    radius: str = "Certified"
    n_arms: int = 500
    kernel: Any = RBF
    d: int = 2
    regularization: float = NOISE**2
    batch: int = 1
    delay: int = 0
    told: bool = False  # a noise for each result, ω between .1 and 10
    contexts: bool = False  # new arms at every step, given by value
    uniform: bool = False  # arms are pulled at random
    key: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        names = {"system": self.system, "what": self.what, "radius": self.radius}
        object.__setattr__(self, "key", {**names, "arms": self.n_arms})

    def policy(self, problem: Draw, seed: int) -> Any:
        radius: Any = ma.Bayes(DELTA)
        if self.radius != "Bayes":
            made = Unbiased if self.radius == "Unbiased" else getattr(ma, self.radius)
            radius = made(norm=NORM, noise=NOISE, delta=DELTA)
        options: dict[str, Any] = {
            "regularization": self.regularization,
            "noise": NOISE,
            "confidence": radius,
        }
        if self.system == "gpucb":
            return ma.GPUCB(problem.arms, self.kernel, seed=seed, **options)
        arms = None if self.contexts else problem.arms
        if self.contexts:
            options["n_features"] = self.d
        return ma.BKB(arms, self.kernel, rule=self.rule, seed=seed, **options)


def play(cell: Cell, steps: int, seed: int) -> Figures:
    """A run. Choosing and observing are timed; whether f is inside is looked at outside the clock."""
    problem = Draw.of(seed, cell.n_arms, cell.kernel, cell.d)
    rng = np.random.default_rng([seed, 8])
    means = problem(problem.arms)
    diag = cell.kernel.diag(problem.arms)
    clock = Clock(process_time)
    with clock:
        policy = cell.policy(problem, seed)
    waiting: list[np.ndarray] = []
    ratios: list[float] = []
    regret = 0.0
    done = 0
    while done < steps:
        if cell.contexts:
            offers = rng.random((cell.n_arms, cell.d))
            with clock:
                chosen = policy.choose(arms=offers)
            values = problem(offers)
            regret += float(values.max() - values[chosen][0])
            arms = offers[chosen]
            expected = values[chosen]
        else:
            n = min(cell.batch, steps - done)
            with clock:
                chosen = policy.choose(n, pending=np.concatenate([np.zeros(0, int), *waiting]))
            if cell.uniform:
                chosen = rng.integers(cell.n_arms, size=n)
            regret += float((means.max() - means[chosen]).sum())
            waiting.append(chosen)
            if len(waiting) <= cell.delay:
                continue
            arms = waiting.pop(0)
            expected = means[arms]
        weights = 10 ** rng.uniform(-1, 1, len(expected)) if cell.told else np.ones(len(expected))
        sd = NOISE / np.sqrt(weights)
        rewards = expected + sd * rng.standard_normal(len(expected))
        with clock:
            policy.observe(arms, rewards, noise=sd if cell.told else None)
        done += len(expected)
        ratios.append(covers(policy, problem, means, diag))
    found = policy.belief.keys if hasattr(policy.belief, "keys") else np.unique(policy.log.arms)
    return Figures(
        min(ratios) >= 1,
        regret,
        len(found),
        policy.evidence.left_out,
        clock.seconds,
        ratios[-1],
        min(ratios),
        max(ratios),
    )


def covers(policy: Any, problem: Draw, means: np.ndarray, diag: np.ndarray) -> float:
    """β̃ over the smallest β that would cover f at all arms of the table now."""
    if policy.n_arms:
        mean, variance, _ = policy.scores()
    else:
        mean, variance = policy.belief.moments(problem.arms, diag)
    error = np.abs(means - mean)
    deviation = np.sqrt(variance)
    # Rounding: an arm that is known to 1e-9 is known.
    needed = np.max(np.maximum(error - 1e-9, 0) / np.maximum(deviation, 1e-300))
    return float(policy.beta / max(needed, 1e-300))


# --- What is run


def radii(n_arms: int, steps: int) -> list[Cell]:
    """The cells of the first table."""
    theorem = ma.oversampling_for(0.5, DELTA / 2, steps)
    make = partial(Cell, n_arms=n_arms)
    cells = []
    for radius in RADII:
        for rho in TOLERANCES:
            cells.append(make("bkb", f"ρ = {rho:g}", ma.Inserted(rho), radius))
    for radius in ("Resampled", "LogDet", "Theory"):
        for q in (1.0, 5.0, theorem):
            cells.append(make("algorithm1", f"q̄ = {q:.3g}", ma.Sampled(q), radius))
    return cells + [make("gpucb", "exact", None, radius) for radius in RADII]


def conditions(n_arms: int) -> list[Cell]:
    """The cells of the second table."""
    make = partial(Cell, n_arms=n_arms)
    noise = NOISE**2
    ridges = {"ξ²/100": noise / 100, "ξ²/10": noise / 10, "10ξ²": 10 * noise, "100ξ²": 100 * noise}
    return [
        make(),
        make(what="smallest r first, random arms", rule=SmallestFirst(), uniform=True),
        make(what="random W", rule=Coin()),
        make(what="random W, random arms", rule=Coin(), uniform=True),
        make(what="most = 10", rule=ma.Inserted(most=10)),
        make(what="weights ω from .1 to 10", told=True),
        make(what="batches of 8", batch=8),
        make(what="results 10 steps late", delay=10),
        make(what="contexts", contexts=True),
        *(make(what=f"λ = {name}", regularization=ridge) for name, ridge in ridges.items()),
        *(make(what=name, kernel=kernel, d=d) for name, (kernel, d) in OTHER.items()),
        *(make("algorithm1", f"q̄ = {q:g}", ma.Sampled(q), "Resampled") for q in (1.0, 5.0)),
        make("gpucb", "exact", None),
    ]


def owned(n_arms: int) -> list[Cell]:
    """The cells of the table about own parts."""

    def make(what: str, v: float, **options: Any) -> Cell:
        name = f"own parts, v = {v / NOISE**2:g}ξ²{what}"
        return Cell(n_arms=n_arms, what=name, kernel=ma.kernels.Own(RBF, v), **options)

    v = 10 * NOISE**2
    return [
        *(make("", ratio * NOISE**2) for ratio in (1.0, 10.0, 100.0)),
        make(", most = 10", v, rule=ma.Inserted(most=10)),
        make(", random W, random arms", v, rule=Coin(), uniform=True),
        make(", weights ω from .1 to 10", v, told=True),
        make(", batches of 8", v, batch=8),
    ]


def controls(n_arms: int) -> list[Cell]:
    """The same rules with a radius that does not hold: the experiment must be able to fail."""
    return [replace(cell, radius="Unbiased") for cell in conditions(n_arms)[:4]]


class Kept:
    """Runs that were made, a line each."""

    def __init__(self, path: Path, steps: int, budget: float) -> None:
        self.path = path
        self.steps = steps
        self.budget = budget
        self.rows = list(self._read())
        self.spent = 0.0

    def _read(self) -> Iterator[dict]:
        if not self.path.exists():
            return
        for line in self.path.read_text().splitlines():
            try:
                yield json.loads(line)
            except json.JSONDecodeError:  # the last line of a run that was interrupted
                continue

    def runs(self, cells: list[Cell], seeds: int) -> None:
        """Make those that are missing, seed by seed, until the budget is spent."""
        with threadpool_limits(1):
            for seed in range(seeds):
                for cell in cells:
                    self._run(cell, seed)

    def _run(self, cell: Cell, seed: int) -> None:
        key = {**cell.key, "steps": self.steps, "seed": seed}
        if of(self.rows, **key) or self.spent > self.budget:
            return
        start = process_time()
        row = {**key, **play(cell, self.steps, seed)._asdict()}
        self.spent += process_time() - start
        self.rows.append(row)
        with self.path.open("a") as file:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")

    def of(self, cell: Cell, seeds: int) -> list[dict]:
        found = of(self.rows, **cell.key, steps=self.steps)
        return [row for row in found if row["seed"] < seeds]


# --- What is published


def experiment(options: Options) -> None:
    """Two tables and a picture."""
    few, many = options.scale((40, 60), (500, 1000))
    steps, seeds = options.size((12, 3), (300, 100))
    fifth = max(2, seeds // 5)
    options.runs.mkdir(parents=True, exist_ok=True)
    kept = Kept(options.runs / "coverage.jsonl", steps, options.budget)
    first = radii(many, steps)
    second = conditions(few)
    third = controls(few)
    fourth = owned(few)
    for cells, number in ((second, seeds), (first, fifth), (third, seeds), (fourth, seeds)):
        kept.runs(cells, number)
    inside = condition_rows(second, kept, seeds)
    costs = [cost_row(cell, kept, first, fifth) for cell in first if kept.of(cell, fifth)]

    def draw(axes):
        looseness(axes[0], [(cell, kept.of(cell, seeds)) for cell in second])
        regret_of_radii(axes[1], [(cell, kept.of(cell, fifth)) for cell in first])

    pictures.panels(2, 2, options.output / "coverage.png", draw, (6.4, 4.8))
    settings = {"norm": NORM, "noise": NOISE, "delta": DELTA, "steps": steps}
    text = TEXT.format(few=few, many=many, verdict=verdict(inside), **settings)
    tables = {
        "f inside": inside,
        "f inside, without the term √(λη)F": condition_rows(third, kept, seeds),
        "f inside, with own parts": condition_rows(fourth, kept, seeds),
        "Radii": costs,
    }
    publish(options, "coverage", "Coverage", text, tables, ["coverage.png"])


def condition_rows(cells: list[Cell], kept: Kept, seeds: int) -> list[dict]:
    """The table of conditions, as far as it was run."""
    found = [(cell, kept.of(cell, seeds)) for cell in cells]
    return [condition_row(cell, rows) for cell, rows in found if rows]


def condition_row(cell: Cell, rows: list[dict]) -> dict:
    """A line of the table of conditions."""
    figures = {name: float(np.median([row[name] for row in rows])) for name in Figures._fields}
    return {
        "system": cell.system,
        "what": cell.what,
        "f inside": sum(row["inside"] for row in rows),
        "of": len(rows),
        "|W|": figures["inducing"],
        "e": figures["left_out"],
        "last β̃ ratio": figures["last"],
        "smallest": figures["tightest"],
        "largest": figures["loosest"],
    }


def cost_row(cell: Cell, kept: Kept, cells: list[Cell], seeds: int) -> dict:
    """A line of the table of radii."""
    rows = kept.of(cell, seeds)
    return {
        "system": cell.system,
        "what": cell.what,
        "radius": cell.radius,
        "f inside": share([row["inside"] for row in rows]),
        "regret": interval(row["regret"] for row in rows),
        "|W|": interval(row["inducing"] for row in rows),
        "e": interval(row["left_out"] for row in rows),
        "seconds": interval(row["seconds"] for row in rows),
        "regret over exact": over_exact(rows, cell, kept, cells, seeds),
    }


def over_exact(rows: list[dict], cell: Cell, kept: Kept, cells: list[Cell], seeds: int) -> Any:
    """Regret over that of exact GP-UCB with the same radius and seed, or with Certified."""
    same = "Certified" if cell.radius == "Resampled" else cell.radius
    exact = next(one for one in cells if one.system == "gpucb" and one.radius == same)
    regrets = {row["seed"]: row["regret"] for row in kept.of(exact, seeds)}
    ratios = [row["regret"] / regrets[row["seed"]] for row in rows if row["seed"] in regrets]
    return interval(ratios, ratio=True) if ratios else "–"


def share(inside: list[bool]) -> str:
    """How many of how many, with the interval of Clopper and Pearson."""
    n = len(inside)
    k = sum(inside)
    low = beta_distribution.ppf(0.025, k, n - k + 1) if k else 0.0
    high = beta_distribution.ppf(0.975, k + 1, n - k) if k < n else 1.0
    return f"{k} of {n} [{low:.2f}, {high:.2f}]"


def verdict(rows: list[dict]) -> str:
    """The smallest count, and the ratios at the defaults, in words."""
    worst = min(rows, key=lambda row: row["f inside"] / row["of"])
    default = rows[0]
    return (
        f"In every cell f is inside in at least {worst['f inside']} of {worst['of']} runs. At the "
        f"defaults β̃ is {default['smallest']:.2f} times what the hardest step of a run needs, and "
        f"{default['last β̃ ratio']:.2f} times what the last step needs; with the exact posterior "
        f"that is {rows[-1]['last β̃ ratio']:.2f}."
    )


def looseness(ax: Any, cells: list[tuple[Cell, list[dict]]]) -> None:
    """β̃ over the smallest β that covers, at the last step: medians, and nine runs of ten."""
    shown = [(cell, [row["last"] for row in rows]) for cell, rows in cells if rows]
    for at, (cell, ratios) in enumerate(shown):
        low, middle, high = np.quantile(ratios, [0.05, 0.5, 0.95])
        colour = pictures.COLOURS[cell.system != "bkb"]
        ax.plot([low, high], [at, at], color=colour, lw=1.5)
        ax.plot(middle, at, "o", color=colour, ms=5)
    names = [f"{cell.system}, {cell.what}" for cell, _ in shown]
    ax.axvline(1.0, color="#6e6e6e", lw=0.8, ls=":")
    ax.set(xscale="log", xlabel="β̃ / smallest β that covers, last step", yticks=range(len(names)))
    ax.set_yticklabels(names, fontsize=7)
    ax.invert_yaxis()


def regret_of_radii(ax: Any, cells: list[tuple[Cell, list[dict]]]) -> None:
    """Regret against the tolerance, a line a radius; the exact posterior's as a dotted line."""
    for number, radius in enumerate(RADII):
        mine = [(cell, rows) for cell, rows in cells if cell.radius == radius and rows]
        inserted = [(cell.rule.tolerance, rows) for cell, rows in mine if cell.system == "bkb"]
        if not inserted:
            continue
        means = [interval(row["regret"] for row in rows) for _, rows in inserted]
        pictures.band(ax, np.array([rho for rho, _ in inserted]), means, radius, number)
        for cell, rows in mine:
            if cell.system == "gpucb":
                exact = float(np.mean([row["regret"] for row in rows]))
                ax.axhline(exact, color=pictures.COLOURS[number], lw=1, ls=":")
    ax.set(xscale="log", yscale="log", xlabel="tolerance ρ", ylabel="regret (dotted: exact)")
    ax.legend(fontsize=8)
