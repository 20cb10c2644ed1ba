"""Small bandit problems of known optimum and norm, and helpers that several test files share."""

from dataclasses import fields, is_dataclass

import numpy as np

from manyarms.bandit.policy import Policy
from manyarms.engine.dictionary import Chance
from manyarms.engine.growing import Stack


class RKHSProblem:
    """f = Σ a_j k(·, c_j) on random arms: ‖f‖² = aᵀK_cc a is known."""

    def __init__(self, kernel, n_arms=200, d=1, norm=1.0, noise=0.1, seed=0):
        rng = np.random.default_rng([seed, 17])
        self.kernel, self.noise, self.norm = kernel, noise, norm
        self.arms = rng.random((n_arms, d))
        centres, a = rng.random((8, d)), rng.standard_normal(8)
        a *= norm / np.sqrt(a @ kernel(centres, centres) @ a)
        self.f = kernel(self.arms, centres) @ a
        self.rng = rng

    def pull(self, arms):
        return self.f[arms] + self.noise * self.rng.standard_normal(len(arms))


def play(policy, pull, steps):
    """The arms chosen in `steps` rounds of choose and observe."""
    chosen = []
    for _ in range(steps):
        arms = policy.choose()
        policy.observe(arms, pull(arms))
        chosen.append(int(arms[0]))
    return np.array(chosen)


def read_only(array):
    array = np.array(array)
    array.setflags(write=False)
    return array


CACHES = ("stats", "_places")
"""What does not determine what a policy does next, beside names that end in `_cache`."""


def fingerprint(policy):
    """Everything that determines what a policy does next, bit by bit."""
    return _frozen(vars(policy))


def _frozen(value):
    if isinstance(value, np.ndarray):
        return value.shape, value.dtype.str, value.tobytes()
    if isinstance(value, Policy):
        return fingerprint(value)
    if isinstance(value, Chance):
        return repr(value._state)
    if isinstance(value, Stack):
        return _frozen(value.items)  # what lies behind them in the buffer is not this value's
    if isinstance(value, list | tuple):
        return [_frozen(item) for item in value]
    if is_dataclass(value) and not isinstance(value, type):
        return _frozen({field.name: getattr(value, field.name) for field in fields(value)})
    if isinstance(value, dict):
        return {name: _frozen(item) for name, item in value.items() if not _is_cache(name)}
    if hasattr(value, "__dict__") and not callable(value):
        return _frozen(vars(value))
    return repr(value)


def _is_cache(name):
    return name in CACHES or str(name).endswith("_cache")
