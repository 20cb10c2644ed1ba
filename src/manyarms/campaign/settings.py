"""What a user says about a search, checked once, and what follows from it.

An `Optimizer` takes it as arguments, a study writes it down (`study/spec`), the command line has
options of the same names.
"""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from manyarms.bandit.bkb import BKB
from manyarms.bandit.domain import DomainBKB
from manyarms.bandit.maximisers import MultiStart
from manyarms.campaign.fitting import Fixed, Mixed, Shape
from manyarms.campaign.results import BOX, LEVELS, TABLE, Schedule
from manyarms.checks import LARGEST, LARGEST_SEED, real, whole
from manyarms.engine.confidence import Constant, Growing, Radius
from manyarms.errors import Advice, ParameterError, shortened
from manyarms.kernels import Kernel, Linear, Tanimoto, Unpacked, as_kernel
from manyarms.kernels.objects import encoder_of
from manyarms.space.box import Box
from manyarms.space.points import Space
from manyarms.space.pool import EXPECTED

TABLE_RADIUS = Constant(2.0)
"""Radius over a table with `Exploration`: chosen by benchmark, see docs/experiments/defaults.md."""
PLAIN_TABLE_RADIUS = Growing(1.3, most=3.0)
"""Radius over a table without `Exploration`: kernel and noise are given, or another policy is."""
BOX_RADIUS = Constant(2.0)
"""Radius over a box: chosen by benchmark, see docs/experiments/defaults.md."""
MAXIMISER = MultiStart(raw=256, starts=2, steps=15)
"""Maximiser over a box that is no product of levels. It is cheaper and less thorough than that of
`DomainBKB`; their regrets could not be told apart (docs/experiments/defaults.md)."""

UNTRIED_RADIUS = Growing(1.5)
"""Radius of a suggestion that must be untried: 2.3 standard deviations after 10 results, 3.5 after
200. With a smaller one, candidates unlike all tried ones lose to neighbours of good ones."""
ARGUMENTS: dict[str, Any] = {
    "direction": "maximize",
    "goal": None,
    "kernel": None,
    "noise": None,
    "confidence": None,
    "repeats": "allow",
    "bounds": None,
    "policy": None,
    "seed": 0,
}
"""What a user may say about a search, and what holds where he says nothing (see `Optimizer`)."""
LEARNED = ("matern", "rbf")
"""Kernels with a lengthscale for each column."""

Direction = Literal["maximize", "minimize"]
Goal = Literal["find", "earn"]


def as_sign(direction: Any) -> float:
    """1 to maximise, −1 to minimise."""
    if not isinstance(direction, str) or direction not in ("maximize", "minimize"):
        raise ParameterError(
            f'direction must be "maximize" or "minimize", got {shortened(direction)}'
        )
    return 1.0 if direction == "maximize" else -1.0


def as_goal(goal: Any, learns: bool) -> str:
    """What a search is for; where nothing is said, to find the best candidate if a kernel is
    learned, else what the theorems are about."""
    if goal is None:
        return "find" if learns else "earn"
    if not isinstance(goal, str) or goal not in ("find", "earn"):
        raise ParameterError(
            f'goal must be "find" (the best candidate by the end) or "earn" (as much as possible '
            f"on the way), got {goal!r}"
        )
    return goal


def as_most(repeats: Any) -> float:
    """How often a candidate may be tried."""
    if isinstance(repeats, str):
        if repeats not in ("allow", "never"):
            raise ParameterError(
                "{option} must be {expected}, got {got}",
                option="repeats",
                expected='"allow", "never" or a whole number',
                got=repeats,
            )
        return np.inf if repeats == "allow" else 1
    return whole(repeats, 'repeats (unless "allow" or "never")', at_most=10**9)


def as_bounds(bounds: Any) -> tuple[float, float]:
    """The least and the largest possible true value, infinite if not given."""
    if bounds is None:
        return -np.inf, np.inf
    expected = "two numbers, the least and the largest true value, or None for either"
    try:
        low, high = bounds
    except (TypeError, ValueError) as error:
        raise ParameterError(f"bounds must be {expected}, got {shortened(bounds)}") from error
    least = -np.inf if low is None else real(low, "the first of bounds", expected)
    largest = np.inf if high is None else real(high, "the second of bounds", expected)
    if not least < largest:
        raise ParameterError(
            f"bounds must be {expected}, the first one less, got {shortened(bounds)}"
        )
    return least, largest


@dataclass(frozen=True)
class Exploration:
    """How many suggestions are candidates that were never tried, and by which radius they are
    chosen, where the best candidate is to be found.

    With a small radius most suggestions are of candidates known to be good. That costs little, and
    finds no better ones once the model is sure of itself. So some suggestions are chosen among the
    others, by a radius that grows. They are c·n^(2/3) of n: a falling share.
    """

    share: float = 3.0  # c; with 3 it is half of the first 200
    radius: Radius = UNTRIED_RADIUS


def as_given(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """What a user may say about a search, by name, with what he left out; the seed as a number.
    What has no meaning here is an option of the policy."""
    given = {name: arguments.get(name, default) for name, default in ARGUMENTS.items()}
    given["seed"] = as_seed(given["seed"])
    given["options"] = {name: each for name, each in arguments.items() if name not in ARGUMENTS}
    return given


@dataclass(frozen=True)
class Settings:
    """What does not change while one searches: what the user said, checked, and what follows from
    it over his space."""

    given: dict[str, Any]  # as `as_given` has it, to be written down
    shape: Shape
    noise: float | None  # a standard deviation in the user's units; None: learned
    learns: bool  # False: the kernel is given in the user's units, as is the noise
    confidence: Radius
    policy: Any  # of (arms or box, kernel, regularization=…, confidence=…, seed=…)
    options: dict[str, Any]
    seed: int
    schedule: Schedule
    bounds: tuple[
        float, float
    ]  # of true values, in the user's units; infinite where there are none
    exploration: Exploration | None
    box: Box | None  # where points come from; None of a table

    @classmethod
    def of(cls, space: Space, given: dict[str, Any]) -> "Settings":
        """The settings of a search over a space; ParameterError where one is out of its range."""
        noise = _noise(given["noise"], as_most(given["repeats"]))
        box = space.box
        policy = given["policy"]
        if policy is None:
            policy = BKB if box is None else DomainBKB
        options = given["options"]
        _check_options(policy, options)
        shape, is_fixed = _shape(given["kernel"], space)
        # Only where kernel and noise are given are the units those of the values.
        learns = not (is_fixed and given["noise"] is not None)
        confidence = given["confidence"]
        is_usual = confidence is None and learns and getattr(policy, "makes", policy) is BKB
        explores = as_goal(given["goal"], learns) == "find" and is_usual
        radius = TABLE_RADIUS if is_usual else PLAIN_TABLE_RADIUS
        schedule = TABLE
        if box is not None:
            radius = BOX_RADIUS
            schedule = BOX if box.levels is None else LEVELS
            if policy is DomainBKB and box.levels is None:
                options = {"maximiser": MAXIMISER, **options}
        return cls(
            given,
            shape,
            noise,
            learns,
            radius if confidence is None else confidence,
            policy,
            options,
            given["seed"],
            schedule,
            as_bounds(given["bounds"]),
            Exploration() if explores else None,
            box,
        )


def _noise(noise: Any, most: float) -> float | None:
    """The standard deviation of values, None where it is to be learned."""
    if noise is None:
        return 0.0 if most == 1 else None  # who asks for each value once takes it for the true one
    expected = "a standard deviation, not negative, in the units of the values"
    return real(noise, "noise", expected, at_least=0, below=LARGEST)


def _check_options(policy: Any, options: dict[str, Any]) -> None:
    """Raise ParameterError if it is no policy, does not know an option, or needs one that is
    missing."""
    if not callable(policy):
        raise ParameterError(
            f"policy must be BKB, GPUCB or another with their arguments, got {shortened(policy)}"
        )
    # What `model._policy` will pass; a call is only tried, nothing is made.
    given = {"regularization": 1.0, "confidence": None, "seed": 0, **options}
    try:
        inspect.signature(policy).bind(None, None, **given)
    except TypeError as error:
        name = getattr(policy, "__name__", repr(policy))
        raise ParameterError(f"the options must be those of {name}: {error}") from error
    except ValueError as error:  # it has no signature: a type such as int
        raise ParameterError(
            f"policy must be BKB, GPUCB or another with their arguments, got {shortened(policy)}"
        ) from error


def as_seed(seed: Any) -> int:
    """A whole number, given or drawn from a generator."""
    if isinstance(seed, np.random.Generator):
        return int(seed.integers(2**63))
    return whole(seed, "seed", at_least=0, at_most=LARGEST_SEED)


def _shape(kernel: Any, pool: Space) -> tuple[Shape, bool]:
    """What is learned of the kernel, and whether the kernel is used as given."""
    if pool.kernel is not None and kernel is None:
        return Fixed(pool.kernel), True
    encoders = [
        encoder_of(each) if isinstance(each, Kernel) else None for each in (kernel, pool.kernel)
    ]
    if encoders[0] != encoders[1]:
        raise ParameterError(
            f"kernel must be one of what the pool holds, got "
            f"{shortened(kernel)} for {pool!r}; objects "
            "that are not rows of numbers go "
            "through Pool.from_objects(objects, kernel)"
        )
    if pool.kernel is not None:
        return Fixed(kernel), True
    # Encoded columns of each kind, in the order in which a row has them.
    widths = dict.fromkeys(("numeric", "categorical", "bits"), 0)
    for feature in pool.features:
        if feature.type != EXPECTED:
            widths[feature.kind] += feature.stop - feature.start
    numeric, codes, bits = widths.values()
    first = int(pool.expected is not None)  # the column of what is expected stands in front
    names = tuple(feature.start - first for feature in pool.features if feature.named)
    own = pool.box is None  # no point of a box is tried twice, and most of f is smooth there
    expected = pool.expected is not None
    packed = tuple(feature.n_bits for feature in pool.features if feature.kind == "bits")

    if expected and not (kernel is None or (isinstance(kernel, str) and kernel in LEARNED)):
        raise ParameterError(
            "a prior must be left out where the kernel is given: how far to trust it is learned, "
            f"with the kernels {' and '.join(map(repr, LEARNED))} only; got kernel="
            f"{shortened(kernel)}"
        )

    def given(kernel: Kernel) -> Shape:
        if isinstance(kernel, Tanimoto) and packed and not numeric + codes:
            return Fixed(Tanimoto(packed=True))
        return Fixed(Unpacked(kernel, packed) if packed else kernel)

    named: dict[str, Shape] = {
        "matern": Mixed(numeric, codes, bits, names, own=own, expected=expected),
        "rbf": Mixed(numeric, codes, bits, names, rbf=True, own=own, expected=expected),
        "tanimoto": given(Tanimoto()),
        "linear": given(Linear(1.0)),
    }
    if kernel is None or isinstance(kernel, str):
        if kernel is not None and kernel not in named:
            raise ParameterError(
                "{option} must be one of {expected}, got {got}",
                Advice("give an object of {} or a function", "manyarms.kernels"),
                expected=", ".join(sorted(named)),
                option="kernel",
                got=kernel,
            )
        return named[kernel or "matern"], False
    return given(as_kernel(kernel)), True
