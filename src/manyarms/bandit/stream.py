"""A stream of requests: rows are offered, one is chosen, and its reward comes later, by the
request's id.

`Stream` remembers the rows that were chosen until their rewards come, in any order and any
portions. It is as large as the policy, O(m²), and what is pending; so is its file: a line
"manyarms stream 2 <SHA-256 of the rest>", a line of JSON, and arrays one behind the other as they
are in memory. The digest tells every damage before anything is read.
"""

import json
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from manyarms.bandit.checks import as_rewards
from manyarms.bandit.policy import Policy, State
from manyarms.checks import as_rows, is_whole, truth, whole
from manyarms.engine.base import Record
from manyarms.engine.frozen import Engine
from manyarms.engine.history import Log
from manyarms.engine.packing import NAMES, Arrays, packed, unpacked
from manyarms.errors import (
    KernelError,
    ObservationError,
    ParameterError,
    RequestError,
    SavedStateError,
    StateError,
    shortened,
)
from manyarms.kernels.objects import encoded, encoder_of
from manyarms.lapack import in_one_thread
from manyarms.runtime.files import in_place_of
from manyarms.typing import Array, ArrayLike, Indices

FIRST_WORDS = b"manyarms stream 2 "
ALIKE = 1e-6
"""Share of κ² by which two kernels may differ on W and count as the same: rounding is far less."""
ARRAY_TYPES = {**NAMES, "W": "<f8", "rows": "<f8"}
"""The arrays of a file: those of a belief, its inducing rows, and the rows that are pending."""


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
def read(path: str | Path, policy: Policy) -> tuple[State, dict[str | int, Array]]:
    """The state and the pending rows that were saved, for a fresh policy of equal settings."""
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
    return State(belief, Log(), belief.n_observations, head["norm"]), waiting


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


Request = str | int
"""The id of a request."""
MOST_BITS = 1024
"""Bits of an id that is a number, at most: a file holds its decimal digits, and Python writes no
more than 4,300."""


class Stream:
    """Requests to a policy, by id: the rows on offer change, and rewards come late and in any
    order.

    It has no locks. Threads that share one hold a lock around each call; processes have one writer
    that calls `choose` and `observe`.

    Parameters
    ----------
    policy : Policy
        One that was made without arms, such as ``BKB(None, kernel, n_features=d)``.
    remembered : int
        Requests that may wait for their rewards. With another one the oldest is forgotten.

    Raises
    ------
    ParameterError
        The policy has a table of arms, or is none.
    """

    def __init__(self, policy: Policy, *, remembered: int = 100_000) -> None:
        if not isinstance(policy, Policy) or policy.n_arms:
            raise ParameterError(
                "a stream takes a policy without arms of its own, such as BKB(None, kernel, "
                f"n_features=d); got {shortened(policy)}"
            )
        self.policy = policy
        self.remembered = whole(remembered, "remembered")
        self._waiting: dict[Request, Array] = {}  # rows chosen, (n, d) each; oldest first

    @property
    def pending(self) -> tuple[Request, ...]:
        """The ids of requests that wait for their rewards, oldest first."""
        return tuple(self._waiting)

    def choose(
        self,
        request: Request,
        arms: ArrayLike,
        n: int = 1,
        *,
        exclude: ArrayLike = (),
        suppose: bool = False,
    ) -> Indices:
        """The rows to show for a request, which waits for their rewards from now on.

        Parameters
        ----------
        request : str or int
            Its id, by which `observe` knows it.
        arms : array_like, (k, d)
            The rows that are offered now.
        n : int
            How many of them.
        exclude : array_like
            Rows that must not be chosen: indices, or a mask.
        suppose : bool
            Rows that wait for their rewards count as pulled: their variances are smaller, so that
            many requests at a time do not all try the same. It costs O(m²) for each that waits.

        Returns
        -------
        ndarray, (n,)
            Numbers of rows.

        Raises
        ------
        RequestError
            A request of this id is waiting already.
        """
        id = _as_id(request)
        if id in self._waiting:
            raise RequestError(
                "request {id!r} is waiting for its reward already; give every request an id of its "
                "own, or forget() the one before",
                id=id,
            )
        pending: ArrayLike = ()
        if truth(suppose, "suppose") and self._waiting:
            pending = np.concatenate(list(self._waiting.values()))
        chosen = self.policy.choose(n, arms=arms, pending=pending, exclude=exclude)
        rows = self._picked(arms, chosen)
        if len(self._waiting) >= self.remembered:
            del self._waiting[next(iter(self._waiting))]
        self._waiting[id] = rows
        return chosen

    def _picked(self, arms: Any, chosen: Indices) -> Array:
        """The rows that were chosen, a copy."""
        policy = self.policy
        by_value = isinstance(arms, np.ndarray) or encoder_of(policy.kernel) is None
        picked = np.asarray(arms)[chosen] if by_value else [arms[i] for i in chosen]
        return as_rows(encoded(picked, policy.kernel, policy.n_features)).astype(np.float64)

    def observe(
        self,
        requests: Request | Mapping[Request, ArrayLike],
        rewards: ArrayLike | None = None,
        *,
        noise: float | None = None,
    ) -> Record:
        """Learn the reward of a request, or those of several in one step or not at all.

        Parameters
        ----------
        requests : str, int or mapping
            The id of a request, or ids with their rewards: ``observe({"a": 1.0, "b": 0.0})``.
        rewards : float or array_like, (n,)
            What the row of a single request gave; of n rows, n numbers.
        noise : float, optional
            Standard deviation of these rewards where it differs from the policy's.

        Returns
        -------
        Record
            What was decided: which rows entered the inducing set.

        Raises
        ------
        RequestError
            A request is not waiting: it was never made, was answered, or was forgotten.
        ObservationError
            A reward is no finite number, or a request has not as many rewards as rows.
        """
        told = requests
        if not isinstance(told, Mapping):
            if rewards is None:
                raise ObservationError(
                    "a request needs its reward, got none; use observe(id, reward)"
                )
            told = {_as_id(told): rewards}
        elif rewards is not None:
            raise ParameterError("rewards stand in the mapping of requests, got others beside it")
        ids = [self._known(request) for request in told]
        if not ids:
            return Record.nothing()
        values = [self._rewards(id, told[id]) for id in ids]
        rows = np.concatenate([self._waiting[id] for id in ids])
        # Where this raises, nothing has changed.
        record = self.policy.observe(rows, np.concatenate(values), noise=noise)
        for id in ids:
            del self._waiting[id]
        return record

    def _rewards(self, id: Request, rewards: ArrayLike) -> Array:
        """The rewards of one request, checked."""
        n = len(self._waiting[id])
        try:
            return as_rewards(rewards, n)
        except ObservationError as error:
            raise ObservationError(
                f"request {id!r}, of which {n} rows were chosen: {error}"
            ) from error

    def forget(self, request: Request) -> None:
        """Forget a request: no reward will come for it.

        What a radius promises holds only if that does not depend on the reward: who forgets
        requests because little came of them is left with rewards that are too high
        (docs/theory.md, condition 3).

        Parameters
        ----------
        request : str or int
            Its id.

        Raises
        ------
        RequestError
            The request is not waiting.
        """
        del self._waiting[self._known(request)]

    def _known(self, request: Request) -> Request:
        id = _as_id(request)
        if id not in self._waiting:
            raise RequestError(
                "request {id!r} is not waiting for a reward: it was never made, was answered, or "
                f"was forgotten as more than {self.remembered:,} were waiting; choose() for it "
                "first, or raise `remembered`",
                id=id,
            )
        return id

    def save(self, path: str | Path) -> None:
        """Write the state of the policy and what is pending to a file, in place of the one there.

        It takes 8m² bytes and little else, and no observation is in it. The file is whole at any
        moment: it takes the place of the old one at once.

        Parameters
        ----------
        path : str or Path
            Where to.

        Raises
        ------
        StateError
            The policy is none of ``rule=Inserted(…)``.
        SavedStateError
            The file cannot be written.
        """
        data = written(self.policy, self._waiting)
        target = as_place(path)
        try:
            with in_place_of(target) as draft:
                draft.write_bytes(data)
        except OSError as error:
            raise SavedStateError(
                f"cannot write {target}: {error.strerror}; what was there is as it was"
            ) from error

    @classmethod
    def load(cls, path: str | Path, policy: Policy, *, remembered: int = 100_000) -> "Stream":
        """The stream that was saved.

        Parameters
        ----------
        path : str or Path
            The file.
        policy : Policy
            One with the same kernel, regularization, noise and n_features, made anew. It stays as
            it is; the stream has a twin of it.
        remembered : int
            As for `Stream`.

        Returns
        -------
        Stream
            With what was pending.

        Raises
        ------
        SavedStateError
            The file is damaged, no file of a stream, or of a policy with other settings.
        """
        stream = cls(policy, remembered=remembered)
        if policy.belief.evidence.n_observations:
            raise StateError(
                f"a saved stream takes a policy that has observed nothing, got {shortened(policy)}"
            )
        state, waiting = read(path, policy)
        stream.policy = policy.resumed(state)
        stream._waiting = dict(list(waiting.items())[-stream.remembered :])
        return stream

    def __repr__(self) -> str:
        return f"Stream({self.policy!r}, {len(self._waiting)} requests pending)"


def _as_id(request: Any) -> Request:
    if isinstance(request, str):
        return request
    if is_whole(request) and int(request).bit_length() <= MOST_BITS:
        return int(request)
    raise ParameterError(
        f"the id of a request is a string, or a whole number of at most {MOST_BITS:,} bits, got "
        f"{shortened(request)}"
    )
