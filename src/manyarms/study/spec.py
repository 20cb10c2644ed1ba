"""Settings of a study as JSON: kernels, radii and policies by name and arguments. No code is
stored."""

import inspect
import json
from importlib import import_module
from typing import Any

import numpy as np

from manyarms import bandit, kernels
from manyarms.bandit.adabkb import AdaBKB
from manyarms.bandit.batches import GlobalRule
from manyarms.bandit.domain import DomainBKB
from manyarms.bandit.maximisers import MultiStart, Sweeps
from manyarms.campaign.settings import ARGUMENTS, Settings
from manyarms.engine.confidence import (
    Bayes,
    Certified,
    Constant,
    Growing,
    LogDet,
    Resampled,
    Theory,
)
from manyarms.engine.frozen import Inserted
from manyarms.engine.sampled import Sampled
from manyarms.errors import ManyArmsError, ParameterError, StudyError, shortened
from manyarms.kernels import Kernel
from manyarms.search.tuning import Tuning
from manyarms.space.box import Box
from manyarms.space.points import Space

OPTION_TYPES = (  # beside kernels: radii, rules and what else an option may be
    Bayes,
    Certified,
    Constant,
    GlobalRule,
    Growing,
    Inserted,
    LogDet,
    MultiStart,
    Resampled,
    Sampled,
    Sweeps,
    Theory,
    Tuning,
)
NAMED: dict[str, Any] = {
    **{
        name: getattr(kernels, name)
        for name in kernels.__all__
        if inspect.isclass(getattr(kernels, name))
    },
    **{each.__name__: each for each in OPTION_TYPES},
}
"""What is written as {"name": arguments}."""


def written(value: Any, what: str) -> Any:
    """A setting for JSON; `what` names it in messages."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if np.isfinite(value) else {"float": str(value)}  # ∞ is not JSON
    if isinstance(value, list | tuple):
        return [written(item, what) for item in value]
    name = type(value).__name__
    if type(value) is NAMED.get(name):
        arguments = [
            each for each in inspect.signature(type(value)).parameters if hasattr(value, each)
        ]
        spec = {name: {each: written(getattr(value, each), what) for each in arguments}}
        # Read back at once: what cannot be made again must not be stored.
        if repr(read(spec)) == repr(value):
            return spec
    wanted = (
        "a name or a kernel of manyarms.kernels"
        if isinstance(value, Kernel) or what == "kernel"
        else "a number or a name"
    )
    raise ParameterError(
        f"{what} of a study must be something that can be written down, {wanted}; got "
        f"{shortened(value)}"
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


def written_box(box: Box) -> list[dict[str, Any]]:
    """A box for JSON, column by column."""
    columns: list[dict[str, Any]] = [
        {"levels" if isinstance(column.given, list) else "range": [*column.given]}
        for column in box.columns
    ]
    if box.named:
        columns = [{"name": name} | column for name, column in zip(box.names, columns, strict=True)]
    try:
        same = repr(read_box(json.loads(json.dumps(columns, allow_nan=False)))) == repr(box)
        repr(box).encode()
    except (TypeError, ValueError, ManyArmsError):
        same = False
    if not same:
        raise ParameterError(
            f"columns and levels of a box that is stored must be text or numbers, got "
            f"{shortened(box)}"
        )
    return columns


def read_box(columns: list[dict[str, Any]]) -> Box:
    """The box that `written_box` wrote."""
    if "name" not in columns[0]:
        return Box([column["range"] for column in columns])
    return Box(**{each["name"]: each.get("levels") or tuple(each["range"]) for each in columns})


def written_settings(given: dict[str, Any], space: Space) -> dict[str, Any]:
    """What a user said about a search (`campaign.settings.as_given`), for JSON."""
    named = {**given, "policy": written_policy(given["policy"], space)}
    options = {name: written(value, name) for name, value in given["options"].items()}
    return {**{name: written(named[name], name) for name in ARGUMENTS}, "options": options}


def read_settings(written: dict[str, Any], space: Space, maker: Any = None) -> Settings:
    """The settings that `written_settings` wrote; `maker` makes the policy that they name, in a way
    of its own."""
    given = {name: read(written.get(name, default)) for name, default in ARGUMENTS.items()}
    given["policy"] = read_policy(written["policy"]) if maker is None else maker
    given["options"] = {name: read(value) for name, value in written["options"].items()}
    return Settings.of(space, given)


def written_policy(policy: Any, space: Space) -> str:
    """A policy by its name; the usual one where None."""
    if policy is None:
        return "BKB" if space.box is None else "DomainBKB"
    made = getattr(policy, "makes", policy)
    name = getattr(made, "__name__", repr(made))
    if _policy(name) is not made:
        raise ParameterError(
            "policy of a study must be BKB, GPUCB or one of manyarms.baselines, over a box "
            f"DomainBKB or AdaBKB, got {shortened(policy)}"
        )
    return str(name)


def maker_of(policy: Any, name: str) -> Any:
    """What makes the policy of that name in a way of its own, such as `cluster.OnShards`; None
    where the policy itself, or nothing, is given."""
    made = getattr(policy, "makes", policy)
    if policy is not None and (made is None or _policy(name) is not made):
        raise ParameterError(
            f"this study was made with the policy {name}; policy must be that one, or make it as "
            f"cluster.OnShards makes a BKB, got {shortened(policy)}"
        )
    return None if made is policy else policy


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
    over_a_box = {"DomainBKB": DomainBKB, "AdaBKB": AdaBKB}
    found = over_a_box.get(name) or getattr(bandit, name, None)
    if found is None:
        found = getattr(import_module("manyarms.baselines"), name, None)
    return found if inspect.isclass(found) else None
