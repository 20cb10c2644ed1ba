"""Snapshots: a cache of models, so that opening a study observes few of its results again.

A model is a function of space, settings and results. A snapshot holds what takes long to compute,
under a digest of all that it is a function of: the fits, and the belief as arrays, as they are
(`engine/packing`): two triangles of |W| rows, 8|W|² bytes in all, and little else. One that is of
something else, or not finite, is as good as none.
"""

import hashlib
import json
from typing import Any

import numpy as np

from manyarms.bandit.bkb import BKB
from manyarms.bandit.domain import DomainBKB
from manyarms.bandit.policy import State
from manyarms.campaign.fitting import Fit
from manyarms.campaign.model import Fitted, Model, made
from manyarms.campaign.schedule import Plan
from manyarms.campaign.trials import Results
from manyarms.campaign.units import Warp
from manyarms.engine.frozen import Engine
from manyarms.engine.growing import Stack
from manyarms.engine.history import Log
from manyarms.engine.packing import NAMES, Arrays, packed, unpacked
from manyarms.typing import Array

FORMAT = 1
"""Of snapshots. Those of another are not read."""
TYPES = {**NAMES, "W": "<f8", "log": "<f8", "last": "<f8", "thorough": "<f8"}
"""The arrays of a snapshot and their types."""


def digest_of(settings: dict[str, Any], arms: Array, results: Results) -> str:
    """Of all that a model of these results over these rows (A, d) is a function of."""
    found = hashlib.sha256(json.dumps([FORMAT, settings], sort_keys=True).encode())
    for each in (*results, arms[results.arms]):
        found.update(np.ascontiguousarray(each).tobytes())
    return found.hexdigest()


def written(model: Model, digest: str) -> bytes | None:
    """A model as bytes: a line of JSON, and arrays one behind the other; None where its policy has
    a belief that is not kept."""
    policy = model.policy
    if type(policy) not in (BKB, DomainBKB) or not isinstance(policy.belief, Engine):
        return None
    if model.elsewhere is not None:
        return None  # two models, and soon one again
    arrays: Arrays = {**packed(policy.belief), "W": policy.belief.W.ravel()}
    arrays["log"] = policy.log.rows.items.ravel() if type(policy) is BKB else np.zeros(0)
    arrays |= {"last": _numbers(model.last), "thorough": _numbers(model.thorough)}
    if not all(np.isfinite(array).all() for array in arrays.values()):
        return None
    sizes = [int(arrays[name].size) for name in TYPES]
    head = {"digest": digest, "norm": policy.evidence.norm, "sizes": sizes}
    parts = [arrays[name].astype(dtype).tobytes() for name, dtype in TYPES.items()]
    return b"".join([json.dumps(head, allow_nan=False).encode(), b"\n", *parts])


def read(data: bytes, digest: str, prior: Model, arms: Array, results: Results) -> Model | None:
    """The model that was written under this digest, of these results over these rows (A, d), made
    of one that knows nothing; None where something else was written."""
    try:
        line, _, rest = data.partition(b"\n")
        head = json.loads(line)
        if head["digest"] != digest:
            return None
        arrays: Arrays = {}
        start = 0
        for (name, dtype), size in zip(TYPES.items(), head["sizes"], strict=True):
            arrays[name] = np.frombuffer(rest, dtype=dtype, count=size, offset=start)
            start += arrays[name].nbytes
        return _read(arrays, head["norm"], prior, arms, results)
    except (LookupError, TypeError, ValueError):
        return None


def _read(arrays: Arrays, norm: float | None, prior: Model, arms: Array, results: Results) -> Model:
    settings = prior.settings
    plan = Plan().after(results, settings.schedule) if settings.learns else Plan()
    last, thorough = _fit(arrays["last"]), _fit(arrays["thorough"])
    model = made(settings, arms, plan, last, thorough)
    policy = model.policy
    W = arrays["W"].reshape(-1, arms.shape[1])
    belief = unpacked(policy.belief, arrays, W)
    if type(policy) is DomainBKB:
        rewards = model.warp.reward(results.values)
        noise = model.noises(policy, results.noise)
        policy = policy.resumed(belief, norm, arms[results.arms], rewards, **noise)
    else:
        log = Log(Stack(arrays["log"].reshape(-1, 4)))
        policy = policy.resumed(State(belief, log, results.n, norm))
    return Model(settings, arms, policy, results, plan, thorough, last)


def _numbers(fitted: Fitted | None) -> Array:
    """A fit as numbers: how many parameters, how many knots, and all of them."""
    if fitted is None:
        return np.zeros(0)
    found, warp = fitted
    sizes = [len(found.theta), len(warp.values)]
    fit = [found.scale, found.noise, found.mean, found.loss, warp.floor]
    return np.concatenate([sizes, fit, found.theta, warp.values, warp.rewards])


def _fit(numbers: Array) -> Fitted | None:
    """The fit of these numbers."""
    if not len(numbers):
        return None
    p, k = numbers[:2].astype(int).tolist()
    scale, noise, mean, loss, floor = numbers[2:7].tolist()
    theta, values, rewards = np.split(numbers[7:], [p, p + k])
    if len(rewards) != k:
        raise ValueError(f"{len(rewards)} rewards for {k} knots")
    return Fitted(Fit(theta, scale, noise, mean, loss), Warp(values, rewards, floor))
