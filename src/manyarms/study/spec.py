"""Settings of a study as JSON: kernels, radii and policies by name and arguments. No code is
stored."""

import inspect
from typing import Any

import numpy as np

from manyarms import baselines, kernels
from manyarms.beliefs.frozen import Inserted
from manyarms.beliefs.sampled import Sampled
from manyarms.campaign.campaign import Campaign
from manyarms.errors import ParameterError, StudyError
from manyarms.kernels import Kernel
from manyarms.policies import BKB, GPUCB
from manyarms.policies.batches import GlobalRule
from manyarms.pool.pool import Pool
from manyarms.search.tuning import Tuning
from manyarms.sketch.confidence import (
    Bayes,
    Certified,
    Constant,
    Growing,
    LogDet,
    Resampled,
    Theory,
)

OTHERS = (
    Bayes,
    Certified,
    Constant,
    GlobalRule,
    Growing,
    Inserted,
    LogDet,
    Resampled,
    Sampled,
    Theory,
    Tuning,
)
NAMED: dict[str, Any] = {
    **{
        name: getattr(kernels, name)
        for name in kernels.__all__
        if inspect.isclass(getattr(kernels, name))
    },
    **{each.__name__: each for each in OTHERS},
}
"""What is written as {"name": arguments}."""


def written(value: Any, what: str) -> Any:
    """A setting for JSON; `what` names it in messages."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if np.isfinite(value) else {"float": str(value)}
    if isinstance(value, list | tuple):
        return [written(item, what) for item in value]
    name = type(value).__name__
    if type(value) is NAMED.get(name):
        arguments = [
            each for each in inspect.signature(type(value)).parameters if hasattr(value, each)
        ]
        spec = {name: {each: written(getattr(value, each), what) for each in arguments}}
        if repr(read(spec)) == repr(value):
            return spec
    wanted = (
        "a name or a kernel of manyarms.kernels"
        if isinstance(value, Kernel) or what == "kernel"
        else "a number or a name"
    )
    raise ParameterError(
        f"{what} of a study must be something that can be written down, {wanted}; got {value!r}"
    )


def read(spec: Any) -> Any:
    """The setting that `written` wrote."""
    if isinstance(spec, list):
        return tuple(read(item) for item in spec)
    if not isinstance(spec, dict):
        return spec
    ((name, arguments),) = spec.items()
    if name == "float":
        return float(arguments)
    if name not in NAMED:
        raise StudyError(
            f"this study uses {name}, which this version does not know; open it with a newer one"
        )
    return NAMED[name](**{each: read(value) for each, value in arguments.items()})


def campaign_of(settings: dict[str, Any], pool: Pool) -> Campaign:
    """The search with settings that were written, before anything was asked."""
    options = {name: read(value) for name, value in settings["options"].items()}
    return Campaign.begun(
        pool,
        direction=settings["direction"],
        kernel=read(settings["kernel"]),
        noise=settings["noise"],
        confidence=read(settings["confidence"]),
        repeats=settings["repeats"],
        bounds=settings.get("bounds"),  # none in studies of earlier versions
        policy=read_policy(settings["policy"]),
        seed=settings["seed"],
        options=options,
    )


def written_policy(policy: Any) -> str:
    """A policy by its name."""
    name = getattr(policy, "__name__", repr(policy))
    if _policy(name) is not policy:
        raise ParameterError(
            f"policy of a study must be BKB, GPUCB or one of manyarms.baselines, got {policy!r}"
        )
    return str(name)


def read_policy(name: str) -> Any:
    """The policy that `written_policy` named."""
    policy = _policy(name)
    if policy is None:
        raise StudyError(
            f"this study uses the policy {name}, which this version does not know; open it with a "
            "newer one"
        )
    return policy


def _policy(name: str) -> Any:
    """The policy of that name, None where there is none."""
    own = {"BKB": BKB, "GPUCB": GPUCB}
    if name in own:
        return own[name]
    return getattr(baselines, name) if name in baselines.__all__ else None
