"""Expected improvement (Mockus 1978) and probability of improvement (Kushner 1964).

Both are here on the exact posterior and on BKB's sketch, where EI is searched lazily
(`search/improvement.py`): most arms are passed over by bounds, as for upper confidence bounds.

An arm is judged by how much f may exceed the incumbent μ⁺, under f(x) ~ N(μ̃(x), β̃²σ̃²(x)):

    EI(x) = E max(0, f(x) − μ⁺),    PI(x) = P(f(x) ≥ μ⁺ + margin).

With noise the best reward seen is luck as well as merit, so the incumbent is the largest posterior
*mean* of the pulled arms. The deviation is β̃σ̃; the radius `Constant(1.0)`, the default, makes it
the posterior standard deviation √λσ̃ of f.

No regret guarantee: sublinear regret is proved for EI with inflated deviations and the exact
posterior (Wang and de Freitas, arXiv:1406.7758; Tran-The, Gupta, Rana and Venkatesh, AISTATS 2022),
not for the plain deviation, nor for PI, nor on a sketch. Rates of plain EI are known without noise
(Bull, JMLR 2011). A radius that grows may be given as `confidence`.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from manyarms.bandit.policy import Policy
from manyarms.checks import real
from manyarms.engine.confidence import Constant, Radius
from manyarms.engine.exact import Exact
from manyarms.engine.frozen import Inserted
from manyarms.engine.linalg import TINY
from manyarms.search.improvement import NO_SPREAD, ExpectedImprovement, incumbent
from manyarms.search.scores import TIE, View
from manyarms.typing import Array, TableLike


@dataclass(frozen=True)
class ProbabilityOfImprovement:
    """The arm of largest PI, by a margin of so many √λ. Batches are as those of EI."""

    margin: float = 0.1

    looks: ClassVar[bool] = True

    def __post_init__(self) -> None:
        real(self.margin, "margin", "a non-negative multiple of the noise", at_least=0)

    def pick(self, view: View) -> int:
        best = incumbent(view)
        margin = self.margin * np.sqrt(view.regularization)
        floor = max(NO_SPREAD * (abs(best) + view.beta), TINY)

        def acquisition(mean: Array, deviation: Array) -> tuple[Array, Array]:
            gain = mean - best
            # PI = Φ(u), which increases with u.
            u = (gain - margin) / np.maximum(view.beta * deviation, floor)
            return u, TIE * (1 + np.abs(u))

        return view.scores.arg_max(acquisition, view.barred)


class GPEI(Policy):
    """Expected improvement on the exact posterior, O(A·u) a step: no regret guarantee in this form.

    Parameters
    ----------
    arms : array_like, (A, d), path or None
        As for `GPUCB`.
    kernel : Kernel
        The covariance of f.
    confidence : Radius
        β̃, by which deviations are multiplied; `Constant(1.0)` is the posterior's own.
    **options
        The others of `GPUCB`.
    """

    def __init__(
        self,
        arms: TableLike | None,
        kernel: Any,
        *,
        confidence: Radius = Constant(1.0),
        **options: Any,
    ) -> None:
        super().__init__(
            arms,
            kernel,
            rule=Exact(),
            chooser=ExpectedImprovement(),
            confidence=confidence,
            **options,
        )


class SketchEI(Policy):
    """Expected improvement on BKB's sketch, without looking at most arms: no regret guarantee.

    Parameters
    ----------
    arms : array_like, (A, d), path or None
        As for `BKB`.
    kernel : Kernel
        The covariance of f.
    rule : Inserted
        Which rows enter the inducing set.
    confidence : Radius
        β̃, by which deviations are multiplied; `Constant(1.0)` is the posterior's own.
    **options
        The others of `BKB`.
    """

    def __init__(
        self,
        arms: TableLike | None,
        kernel: Any,
        *,
        rule: Inserted = Inserted(),
        confidence: Radius = Constant(1.0),
        **options: Any,
    ) -> None:
        super().__init__(
            arms, kernel, rule=rule, chooser=ExpectedImprovement(), confidence=confidence, **options
        )


class GPPI(Policy):
    """Probability of improvement on the exact posterior, O(A·u) a step: no regret guarantee.

    Parameters
    ----------
    arms : array_like, (A, d), path or None
        As for `GPUCB`.
    kernel : Kernel
        The covariance of f.
    margin : float
        By how much to improve, in multiples of √λ, the noise's standard deviation. At 0 the
        incumbent has probability ½, and is pulled until the mean of another arm exceeds its own.
    **options
        Those of `GPUCB`; the radius does not change the choice.
    """

    def __init__(
        self,
        arms: TableLike | None,
        kernel: Any,
        *,
        margin: float = 0.1,
        **options: Any,
    ) -> None:
        super().__init__(
            arms, kernel, rule=Exact(), chooser=ProbabilityOfImprovement(margin), **options
        )


class SketchPI(Policy):
    """Probability of improvement on BKB's sketch, O(A m) a step: no regret guarantee.

    Parameters
    ----------
    arms : array_like, (A, d), path or None
        As for `BKB`.
    kernel : Kernel
        The covariance of f.
    rule : Inserted
        Which rows enter the inducing set.
    margin : float
        As for `GPPI`.
    **options
        Those of `BKB`; the radius does not change the choice.
    """

    def __init__(
        self,
        arms: TableLike | None,
        kernel: Any,
        *,
        rule: Inserted = Inserted(),
        margin: float = 0.1,
        **options: Any,
    ) -> None:
        super().__init__(
            arms, kernel, rule=rule, chooser=ProbabilityOfImprovement(margin), **options
        )
