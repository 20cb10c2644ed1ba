"""Sampling of the dictionary by leverage (Algorithm 1, inner loop), and Theorem 1's q̄."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from manyarms.checks import probability, whole
from manyarms.typing import Array, Indices


def inclusion_probability(variance: Array, counts: Array, oversampling: float) -> Array:
    """Line 7: min(1, n·q̄·σ̃²), with which a row of leverage σ̃² and weight n enters the
    dictionary.

    Algorithm 1 draws a Bernoulli(q̄σ̃²) for every *pull*; one of n is drawn with probability 1 − (1
    − q̄σ̃²)ⁿ, which is less. The proof of Theorem 1 covers a weighted row that is drawn once, and
    needs this one: with 300 orthogonal arms pulled 20 times each and q̄ = 5, the other breaks the
    sandwich of ε = ½ in half of the draws.
    """
    # A product beyond float64 is ∞, and min(1, ∞) = 1 is right.
    with np.errstate(over="ignore"):
        return np.asarray(np.minimum(1.0, counts * variance * oversampling))


@dataclass(frozen=True)
class Chance:
    """A random generator as a value: drawing returns the next one. It is cheaper than a copy."""

    _generator: np.random.Generator  # shared by all that follow from one
    _state: dict[str, Any]

    @classmethod
    def of(cls, rng: np.random.Generator) -> "Chance":
        """What this generator, which is used up, would draw."""
        return cls(rng, dict(rng.bit_generator.state))

    def random(self, n: int) -> tuple[Array, "Chance"]:
        """Uniform numbers in [0, 1), (n,)."""
        self._generator.bit_generator.state = self._state
        return self._generator.random(n), Chance.of(self._generator)

    def integer(self, below: int) -> int:
        """What the generator's `integers` would give next; this chance is not used up by it."""
        self._generator.bit_generator.state = self._state
        return int(self._generator.integers(below))

    def at(self, *numbers: int) -> np.random.Generator:
        """A generator of its own for every sequence of numbers; this chance is not used up."""
        uniform, _ = self.random(1)
        return np.random.default_rng([int(uniform[0] * 2**53), *numbers])


def draw_dictionary(probability: Array, chance: Chance) -> tuple[Indices, Chance]:
    """The places kept by one Bernoulli draw each; an empty draw keeps the most probable one."""
    uniform, chance = chance.random(len(probability))
    kept = np.flatnonzero(uniform < probability)
    return kept if len(kept) else np.array([np.argmax(probability)]), chance


def oversampling_for(epsilon: float, delta: float, horizon: int) -> float:
    """Theorem 1's q̄ = 6α ln(4T/δ)/ε², α = (1 + ε)/(1 − ε).

    With it, σ²/α ≤ σ̃² ≤ ασ² for all arms and all t ≤ T, and |S_t| ≤ 3(1 + κ²/λ)αq̄·d_eff, with
    probability 1 − δ. Theorem 2 spends half of its δ here: pass δ/2. In practice q̄ near 5 is
    accurate; `diagnostics.sketch_accuracy` measures how much.

    Parameters
    ----------
    epsilon : float
        ε, between 0 and 1: how far σ̃² may be from σ².
    delta : float
        δ, between 0 and 1: the probability that it is farther.
    horizon : int
        T, the number of observations that the promise is for.

    Returns
    -------
    float
        q̄, for ``Sampled(oversampling=q̄)``.
    """
    probability("epsilon", epsilon)
    probability("delta", delta)
    whole(horizon, "horizon", at_most=10**18)
    return float(6 * alpha_of(epsilon) * np.log(4 * horizon / delta) / epsilon**2)  # Thm. 1


@dataclass(frozen=True)
class Draws:
    """How a dictionary was drawn so far, where it was drawn as Theorem 1 says."""

    epsilon: float
    phases: tuple[tuple[float, int], ...]  # each q̄, and the observations at its last draw

    def lack(self, epsilon: float, delta: float) -> str | None:
        """What Theorem 1 asks for, and these draws do not have; None where it holds so far.

        A draw of the q̄ for n observations fails with probability δ²s/4n² after s of them (the
        paper's proof has the square), so all draws of a phase fail with δ²/4 at most.
        """
        epsilon = min(epsilon, self.epsilon)
        for oversampling, n in self.phases:
            needed = oversampling_for(epsilon, delta, n)
            if oversampling < needed:
                return (
                    f"Theorem 1 asks for oversampling={needed:.0f} for a horizon of {n:,}, "
                    f"and with that many the dictionary was drawn with {oversampling:.3g}"
                )
        redrawn = len(self.phases) - 1
        if (redrawn + 1) * delta > 4:
            return f"redraw() was called {redrawn:,} times, and that is more than Theorem 1 bears"
        return None


def alpha_of(epsilon: float) -> float:
    """α = (1 + ε)/(1 − ε)."""
    return (1 + epsilon) / (1 - epsilon)
