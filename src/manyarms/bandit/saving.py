"""The state of a policy of frozen features and its pending requests as bytes, and back.

A file is a line "manyarms stream 2 <SHA-256 of the rest>", a line of JSON, and arrays one behind
the other as they are in memory. The digest tells every damage before anything is read.
"""

import json
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from manyarms.bandit.policy import Policy, State
from manyarms.engine.frozen import Engine
from manyarms.engine.history import Log
from manyarms.engine.packing import NAMES, Arrays, packed, unpacked
from manyarms.errors import KernelError, ParameterError, SavedStateError, StateError, shortened
from manyarms.lapack import in_one_thread
from manyarms.typing import Array

FIRST_WORDS = b"manyarms stream 2 "
ALIKE = 1e-6
"""Share of κ² by which two kernels may differ on W and count as the same: rounding is far less."""
ARRAY_TYPES = {**NAMES, "W": "<f8", "rows": "<f8"}
"""The arrays of a file: those of a belief, its inducing rows, and the rows that are pending."""


class Saved(NamedTuple):
    """What was saved."""

    state: State
    waiting: dict[str | int, Array]


def written(policy: Policy, waiting: dict[str | int, Array]) -> bytes:
    """A policy without a table and the rows of its pending requests, as bytes."""
    belief = policy.belief
    if not isinstance(belief, Engine):
        raise StateError(
            f"a stream is saved where its policy is of rule=Inserted(…), this one is of "
            f"{policy.rule!r}"
        )
    d = policy.n_features
    rows = np.concatenate([np.zeros((0, d)), *waiting.values()])
    arrays: Arrays = {**packed(belief), "W": belief.W, "rows": rows}
    head = {
        **_settings(policy, belief),
        "norm": policy.evidence.norm,
        "ids": list(waiting),
        "chosen": [len(rows) for rows in waiting.values()],
        "sizes": [int(arrays[name].size) for name in ARRAY_TYPES],
    }
    parts = [arrays[name].astype(dtype).tobytes() for name, dtype in ARRAY_TYPES.items()]
    rest = b"".join([json.dumps(head).encode(), b"\n", *parts])
    return b"".join([FIRST_WORDS, sha256(rest).hexdigest().encode(), b"\n", rest])


def as_place(path: Any) -> Path:
    """The path of a file, checked."""
    if not isinstance(path, str | Path) or not str(path) or "\0" in str(path):
        raise ParameterError(f"path must be that of a file, got {shortened(path)}")
    return Path(path)


@in_one_thread
def read(path: str | Path, policy: Policy) -> Saved:
    """What was saved, for a policy with the same settings that has observed nothing."""
    try:
        data = as_place(path).read_bytes()
    except OSError as error:
        raise SavedStateError(f"cannot read {path}: {error.strerror}; give the file") from error
    line, _, rest = data.partition(b"\n")
    if not line.startswith(FIRST_WORDS):
        raise SavedStateError(
            f"{path} is no stream that this version has saved: it begins with {line[:20]!r}; give "
            "the file that Stream.save wrote"
        )
    if sha256(rest).hexdigest().encode() != line[len(FIRST_WORDS) :]:
        raise SavedStateError(f"{path} is damaged: its digest does not fit; take an older copy")
    prior = policy.belief
    if not isinstance(prior, Engine):
        raise SavedStateError(f"{path} is of rule=Inserted(…), the policy is of {policy.rule!r}")
    text, _, numbers = rest.partition(b"\n")
    head = json.loads(text)
    for name, expected in _settings(policy, prior).items():
        if head[name] != expected:
            raise SavedStateError(
                f"{path} is of a policy with {name}={head[name]}, this one has {expected}; make "
                "one with the settings of then"
            )
    arrays: Arrays = {}
    start = 0
    for (name, dtype), size in zip(ARRAY_TYPES.items(), head["sizes"], strict=True):
        # A copy: what is read from bytes cannot be written behind.
        arrays[name] = np.frombuffer(numbers, dtype=dtype, count=size, offset=start).copy()
        start += arrays[name].nbytes
    d = policy.n_features
    W = arrays.pop("W").reshape(-1, d)
    rows = arrays.pop("rows").reshape(-1, d)
    belief = unpacked(prior, arrays, W)
    _check_kernel(path, belief)
    ends = np.cumsum(head["chosen"], dtype=np.intp)[:-1]
    waiting = dict(zip(head["ids"], np.split(rows, ends), strict=True)) if head["ids"] else {}
    return Saved(State(belief, Log(), belief.n_observations, head["norm"]), waiting)


def _settings(policy: Policy, belief: Engine) -> dict[str, Any]:
    """The settings that must be the same; the radius, the rule and the discount may change."""
    return {
        "n_features": policy.n_features,
        "regularization": policy.regularization,
        "noise": policy.noise,
        "own_variance": belief.own_variance,
    }


def _check_kernel(path: str | Path, belief: Engine) -> None:
    """Raise SavedStateError where K_WW is not LLᵀ: functions have no name to compare them by."""
    base = belief.base
    upper = base.L.upper if base.m else np.zeros((0, 0))
    try:
        apart = np.abs(base.kernel(base.W, base.W) - upper.T @ upper).max(initial=0.0)
    except KernelError as error:
        raise SavedStateError(f"{path} is of another kernel than {belief.kernel!r}") from error
    if not apart <= ALIKE * base.kappa2:
        raise SavedStateError(
            f"{path} is of another kernel than {belief.kernel!r}: values differ by {apart:.2g}; "
            "make the policy with the kernel of then"
        )
