"""What a user gave to an optimizer, checked: candidates, kernel, noise, repeats."""

import inspect
from functools import partial
from typing import Any, Literal

import numpy as np

from manyarms.bandit.bkb import BKB
from manyarms.bandit.domain import DomainBKB
from manyarms.bandit.multistart import MultiStart
from manyarms.campaign.exploring import Exploration
from manyarms.campaign.fitting import Fixed, Mixed, Shape
from manyarms.campaign.model import Settings
from manyarms.campaign.schedule import BOX, LEVELS, TABLE
from manyarms.checks import LARGEST, LARGEST_SEED, real, whole
from manyarms.engine.confidence import Constant, Growing
from manyarms.errors import Advice, ParameterError
from manyarms.kernels import Kernel, Linear, Tanimoto, Unpacked, as_kernel
from manyarms.kernels.objects import encoder_of
from manyarms.space.box import Box
from manyarms.space.points import Space
from manyarms.space.pool import EXPECTED
from manyarms.typing import Array

TABLE_RADIUS = Constant(2.0)
"""Radius over a table with `Exploration`: chosen by benchmark, see docs/optimizer.md."""
PLAIN_TABLE_RADIUS = Growing(1.3, most=3.0)
"""Radius over a table without `Exploration`: kernel and noise are given, or another policy is."""
BOX_RADIUS = Constant(2.0)
"""Radius over a box: chosen by benchmark, see docs/optimizer.md."""
MAXIMISER = MultiStart(raw=256, starts=2, steps=15)
"""Maximiser over a box that is no product of levels. It is cheaper and less thorough than that of
`DomainBKB`; their regrets could not be told apart (docs/optimizer.md)."""

LEARNED = ("matern", "rbf")
"""Kernels with a lengthscale for each column."""

Direction = Literal["maximize", "minimize"]


def as_sign(direction: Any) -> float:
    """1 to maximise, −1 to minimise."""
    if not isinstance(direction, str) or direction not in ("maximize", "minimize"):
        raise ParameterError(f'direction must be "maximize" or "minimize", got {direction!r}')
    return 1.0 if direction == "maximize" else -1.0


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
        raise ParameterError(f"bounds must be {expected}, got {bounds!r:.80}") from error
    least = -np.inf if low is None else real(low, "the first of bounds", expected)
    largest = np.inf if high is None else real(high, "the second of bounds", expected)
    if not least < largest:
        raise ParameterError(f"bounds must be {expected}, the first one less, got {bounds!r:.80}")
    return least, largest


def as_settings(
    space: Space,
    kernel: Any,
    noise: Any,
    confidence: Any,
    repeats: Any,
    bounds: Any,
    policy: Any,
    seed: Any,
    options: dict[str, Any],
) -> Settings:
    """How the model is made, and what is learned."""
    if noise is not None:
        noise = real(
            noise,
            "noise",
            "a standard deviation, not negative, in the units of the values",
            at_least=0,
            below=LARGEST,
        )
    box = space.box
    if policy is None:
        policy = BKB if box is None else DomainBKB
    if not callable(policy):
        raise ParameterError(
            f"policy must be BKB, GPUCB or another with their arguments, got {policy!r}"
        )
    _check_options(policy, options)
    schedule = TABLE
    made = policy
    if box is not None:
        schedule = BOX if box.levels is None else LEVELS
        made = partial(_over, box, policy)
        if policy is DomainBKB and box.levels is None:
            options = {"maximiser": MAXIMISER, **options}
    shape, fixed = _shape(kernel, space)
    learns = not (fixed and noise is not None)  # only then are units those of the values
    if noise is None and as_most(repeats) == 1:
        noise = 0.0  # who asks for each value once takes it for the true one
    explores = confidence is None and learns and getattr(policy, "makes", policy) is BKB
    if confidence is None:
        confidence = TABLE_RADIUS if explores else PLAIN_TABLE_RADIUS if box is None else BOX_RADIUS
    number = as_seed(seed)
    limits = as_bounds(bounds)
    return Settings(
        shape,
        noise,
        learns,
        confidence,
        made,
        options,
        number,
        schedule,
        limits,
        Exploration() if explores else None,
    )


def _check_options(policy: Any, options: dict[str, Any]) -> None:
    """Raise ParameterError if a policy does not know an option, or needs one that is missing."""
    # What `model._policy` will pass; a call is only tried, nothing is made.
    given = {"regularization": 1.0, "confidence": None, "seed": 0, **options}
    try:
        inspect.signature(policy).bind(None, None, **given)
    except TypeError as error:
        name = getattr(policy, "__name__", repr(policy))
        raise ParameterError(f"the options must be those of {name}: {error}") from error
    except ValueError as error:  # it has no signature: a type such as int
        raise ParameterError(
            f"policy must be BKB, GPUCB or another with their arguments, got {policy!r}"
        ) from error


def _over(box: Box, policy: Any, _: Array, kernel: Any, **settings: Any) -> Any:
    """The policy over a box, whatever the table."""
    return policy(box, kernel, **settings)


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
            f"kernel must be one of what the pool holds, got {kernel!r} for {pool!r}; objects "
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
    own = pool.box is None  # no point of a box is tried twice, and most of f is smooth there
    expected = pool.expected is not None
    packed = tuple(feature.n_bits for feature in pool.features if feature.kind == "bits")

    if expected and not (kernel is None or (isinstance(kernel, str) and kernel in LEARNED)):
        raise ParameterError(
            "a prior must be left out where the kernel is given: how far to trust it is learned, "
            f"with the kernels {' and '.join(map(repr, LEARNED))} only; got kernel={kernel!r}"
        )

    def given(kernel: Kernel) -> Shape:
        if isinstance(kernel, Tanimoto) and packed and not numeric + codes:
            return Fixed(Tanimoto(packed=True))
        return Fixed(Unpacked(kernel, packed) if packed else kernel)

    named: dict[str, Shape] = {
        "matern": Mixed(numeric, codes, bits, own=own, expected=expected),
        "rbf": Mixed(numeric, codes, bits, rbf=True, own=own, expected=expected),
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
