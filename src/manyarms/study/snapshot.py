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
from manyarms.campaign.fitting import Fit, Fitted
from manyarms.campaign.model import Model, made
from manyarms.campaign.results import Plan, Results, Warp
from manyarms.campaign.settings import Settings
from manyarms.engine.frozen import Engine
from manyarms.engine.growing import Stack
from manyarms.engine.history import Log
from manyarms.engine.packing import NAMES, Arrays, packed, unpacked
from manyarms.errors import ManyArmsError
from manyarms.runtime.foreign import NONSENSE
from manyarms.typing import Array

FORMAT = 1
"""Of snapshots. Those of another are not read."""
TYPES = {**NAMES, "W": "<f8", "log": "<f8"}
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
    head = {
        "digest": digest,
        "norm": policy.evidence.norm,
        "sizes": [int(arrays[name].size) for name in TYPES],
        "fits": [_numbers(model.last), _numbers(model.thorough)],
    }
    if not all(np.isfinite(array).all() for array in arrays.values()):
        return None
    parts = [arrays[name].astype(dtype).tobytes() for name, dtype in TYPES.items()]
    return b"".join([json.dumps(head).encode(), b"\n", *parts])


def read(
    data: bytes, digest: str, settings: Settings, arms: Array, results: Results
) -> Model | None:
    """The model that was written under this digest, of these results over these rows (A, d); None
    where something else was written."""
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
        last, thorough = map(_fit, head["fits"])
        return _made(arrays, head["norm"], last, thorough, settings, arms, results)
    except (*NONSENSE, ManyArmsError):
        return None


def _made(
    arrays: Arrays,
    norm: float | None,
    last: Fitted | None,
    thorough: Fitted | None,
    settings: Settings,
    arms: Array,
    results: Results,
) -> Model:
    plan = Plan().after(results, settings.schedule) if settings.learns else Plan()
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
        policy = policy.resumed(State(belief, log, len(results.values), norm))
    return Model(settings, arms, policy, results, plan, thorough, last)


def _numbers(fitted: Fitted | None) -> list[Any] | None:
    """A fit for JSON, which has every digit of a float."""
    if fitted is None:
        return None
    found, warp = fitted
    fit = [found.theta.tolist(), found.scale, found.noise, found.mean, found.loss]
    return [*fit, warp.values.tolist(), warp.rewards.tolist(), warp.floor]


def _fit(numbers: list[Any] | None) -> Fitted | None:
    """The fit that was written."""
    if numbers is None:
        return None
    theta, scale, noise, mean, loss, values, rewards, floor = numbers
    if len(values) != len(rewards):
        raise ValueError(f"{len(rewards)} rewards for {len(values)} knots")
    found = Fit(np.array(theta, dtype=np.float64), scale, noise, mean, loss)
    return Fitted(found, Warp(np.array(values), np.array(rewards), floor))
