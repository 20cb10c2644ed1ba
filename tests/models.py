"""Whether two models are the same, bit by bit."""

import numpy as np

from manyarms.engine.frozen import Engine
from manyarms.engine.packing import packed


def arrays_of(model):
    """All numbers that a model is made of."""
    arrays = {f"results {i}": column for i, column in enumerate(model.results)}
    for name in ("last", "thorough"):
        fitted = getattr(model, name)
        if fitted is not None:
            found, warp = fitted
            arrays[name] = np.concatenate(
                [found.theta, [found.scale, found.noise, found.mean], warp.values, warp.rewards]
            )
    policy = model.policy
    arrays["norm"] = np.array([policy.evidence.norm or 0.0, policy.beta, policy.regularization])
    if isinstance(policy.belief, Engine):
        arrays |= {name: array for name, array in packed(policy.belief).items() if name != "keys"}
        arrays["W"] = policy.belief.W
    tried = model.arms[model.results.arms]
    if len(tried):
        diag = policy.kernel.diag(tried)
        arrays["mean"], arrays["variance"] = policy.belief.moments(tried, diag)
    return arrays


def assert_equal(one, other):
    """Two models are the same."""
    mine, its = arrays_of(one), arrays_of(other)
    assert mine.keys() == its.keys()
    different = [name for name in mine if mine[name].tobytes() != its[name].tobytes()]
    assert not different
    assert one.plan == other.plan
    assert (one.elsewhere is None) == (other.elsewhere is None)
    if one.elsewhere is not None:
        assert_equal(one.elsewhere, other.elsewhere)
