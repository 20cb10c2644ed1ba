"""The public API with arguments that nobody should give.

    python -m soak.calls [--calls 1000000] [--seed 0] [--only policies,optimizers,…]

An episode has a seed. It makes one thing (a kernel, a radius, a pool, a box, a policy, an optimizer, a study) and calls its
methods, with arguments that are right, nearly right or anything. Of every call:

- an error is one of `manyarms.errors`, and the object tells the same as before;
- no number in an answer is infinite or NaN;
- it takes less than 20 s of the processor.

`python -m soak.calls --episode SEED` shows an episode again, call by call.
"""

import argparse
import contextlib
import itertools
import shutil
import signal
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import manyarms as ma
from manyarms.errors import ManyArmsError
from manyarms.space.columns import TYPES
from soak import public
from soak.hostile import Hostile

LONGEST = 20
"""Seconds of the processor that a call may take."""
K = ma.kernels
Call = tuple[str, Callable[[], Any]]


class FaultError(AssertionError):
    """What must not happen."""


class TooLongError(BaseException):
    """Not one of those that a program catches."""


def numbers_in(answer: Any) -> Iterator[float]:
    """Every float of an answer, however it is nested."""
    if isinstance(answer, float | np.floating):
        yield float(answer)
    elif isinstance(answer, np.ndarray):
        yield from answer.ravel().tolist() if answer.dtype.kind == "f" else ()
    elif is_dataclass(answer) and not isinstance(answer, type):
        yield from numbers_in([getattr(answer, field.name) for field in fields(answer)])
    elif isinstance(answer, dict):
        yield from numbers_in(list(answer.values()))
    elif isinstance(answer, list | tuple):
        yield from itertools.chain.from_iterable(map(numbers_in, answer))


# What can be made


def kernel(h: Hostile) -> Any:
    """A kernel of rows of numbers that is right."""
    length = h.one(0.1, 0.3, 1.0, 5.0)
    simple = h.one(
        K.RBF(length), K.Matern(length), K.Linear(1.0), K.Polynomial(2), K.Matern(length, nu=0.5)
    )
    return h.one(simple, simple, 10.0 ** h.rng.uniform(-6, 6) * simple, simple + K.RBF(0.2))


def radius(h: Hostile) -> Any:
    """A radius that is right."""
    return h.one(
        ma.Constant(2.0),
        ma.Growing(1.3),
        ma.Bayes(0.1),
        ma.Certified(1.0, 0.1),
        ma.LogDet(1.0, 0.1),
    )


def rows(h: Hostile, n: int = 12, d: int = 2) -> Any:
    """A table of numbers: spread, repeated, or of another size."""
    table = np.random.default_rng(h.rng.randrange(10**6)).random((n, d))
    if h.rng.random() < 0.2:
        table[n // 2 :] = table[: n - n // 2]
    if h.rng.random() < 0.2:
        table *= 10.0 ** h.rng.uniform(-160, 160)
    return table


def kernels(h: Hostile) -> Iterator[Call]:
    a = h.anything

    def length() -> Any:
        return h.often(lambda: 0.3, 0.4)

    def some() -> Any:
        return h.often(lambda: kernel(h), 0.4)

    def word() -> Any:
        return h.often(lambda: h.one("ACGT", "AC"), 0.5)

    table = rows(h, 6, 2)

    def objects() -> Any:
        return h.often(lambda: ["ACGT", "AC", ""], 0.4)

    yield "RBF", lambda: K.RBF(length())
    yield "Matern", lambda: K.Matern(length(), h.often(lambda: 1.5, 0.5))
    yield "Linear", lambda: K.Linear(a())
    yield "Polynomial", lambda: K.Polynomial(a(), h.often(lambda: 1.0))
    yield "Hamming", lambda: K.Hamming(length())
    yield "Scaled", lambda: K.Scaled(some(), h.often(lambda: 2.0, 0.5))
    yield "Sum", lambda: K.Sum(some(), some())
    yield "Product", lambda: K.Product(some(), some())
    yield "On", lambda: K.On(some(), a(), a())
    yield "Unpacked", lambda: K.Unpacked(some(), h.often(lambda: (8,), 0.5))
    yield "Pairwise", lambda: K.Pairwise(a())
    yield "FromObject", lambda: K.FromObject(some())
    yield "OnObjects", lambda: K.OnObjects(a())
    yield "as_kernel", lambda: K.as_kernel(a())
    yield "Spectrum", lambda: K.Spectrum(h.often(lambda: 2, 0.5), word(), h.often(lambda: None))
    yield (
        "Mismatch",
        lambda: K.Mismatch(h.often(lambda: 3, 0.5), word(), mismatches=h.often(lambda: 1, 0.5)),
    )
    yield "WeisfeilerLehman", lambda: K.WeisfeilerLehman(a())
    yield "pack", lambda: K.pack(a())
    yield "k * c", lambda: kernel(h) * a()
    yield "k + k", lambda: kernel(h) + a()
    yield "encode strings", lambda: K.Spectrum(2, "ACGT").encode(objects())
    yield (
        "encode graphs",
        lambda: K.WeisfeilerLehman().encode([h.often(lambda: (["C", "O"], [(0, 1)]), 0.3)]),
    )
    yield "encode sets", lambda: K.Jaccard().encode([h.often(lambda: {1, 2}, 0.3)])
    yield "k(X, X)", lambda: kernel(h).diag(table)


def radii(h: Hostile) -> Iterator[Call]:
    a = h.anything
    for name in ("Certified", "Theory", "LogDet", "Resampled"):
        numbers = [h.often(lambda: 0.1, 0.5) for _ in range(3)]
        yield name, partial(getattr(ma, name), *numbers)
    for name in ("Bayes", "Constant", "Growing", "GlobalRule", "Inserted", "Sampled"):
        yield name, partial(getattr(ma, name), a())
    yield "Growing", lambda: ma.Growing(h.often(lambda: 1.0), a())
    yield "Tuning", lambda: ma.Tuning(rough=a(), shortlist=h.often(lambda: 4))
    yield (
        "oversampling_for",
        lambda: ma.oversampling_for(h.often(lambda: 0.5), h.often(lambda: 0.1), a()),
    )
    yield "estimate", lambda: ma.BKB.estimate(h.often(lambda: 10), 2, h.one(3, h.real(), "3", None))
    yield "MultiStart", lambda: ma.domains.MultiStart(raw=a(), starts=h.often(lambda: 2))
    yield "Ball", lambda: ma.domains.Ball(a(), h.often(lambda: 1.0))
    yield "Polytope", lambda: ma.domains.Polytope(a(), a())


def pools(h: Hostile) -> Iterator[Call]:
    a = h.anything

    def cell() -> Any:
        return h.often(lambda: h.one(1, 2.5, "a", None, True, [0, 1]), 0.7)

    def dicts() -> Any:
        return [{name: cell() for name in ("id", "x", "c")} for _ in range(4)]

    def keys() -> Any:
        some = {name: h.often(lambda: None) for name in ("id", "columns")}
        return {**some, "missing": h.often(lambda: "drop")}

    def types() -> Any:
        return {h.one("x", "c", "id"): h.one(a(), *TYPES)}

    yield "from_dicts", lambda: ma.Pool.from_dicts(h.often(dicts), **keys())
    yield (
        "from_dicts, types",
        lambda: ma.Pool.from_dicts(dicts(), columns=types(), missing=h.one("category", "drop")),
    )
    yield "from_frame", lambda: ma.Pool.from_frame(h.often(h.frame), **keys())
    yield (
        "from_array",
        lambda: ma.Pool.from_array(
            h.often(lambda: rows(h), 0.5), ids=h.often(lambda: None), names=h.often(lambda: None)
        ),
    )
    yield (
        "from_objects",
        lambda: ma.Pool.from_objects(
            h.often(lambda: ["AC", "GT"], 0.5), h.often(lambda: K.Spectrum(2, "ACGT"), 0.5)
        ),
    )
    yield "from_csv", lambda: ma.Pool.from_csv(a(), id=a())
    yield "from_parquet", lambda: ma.Pool.from_parquet(a())
    pool = ma.Pool.from_dicts(
        [{"id": f"m{i}", "x": i / 7, "c": "ab"[i % 2]} for i in range(8)], id="id"
    )
    for name in ("add", "rows", "row", "positions", "members"):
        yield f"pool.{name}", partial(getattr(pool, name), a())
    yield "pool.add, dicts", lambda: pool.add(dicts(), ids=h.often(lambda: None))


def boxes(h: Hostile) -> Iterator[Call]:
    a = h.anything

    def end() -> Any:
        return h.one(h.whole(), h.real(), 0, 1, 0.0, 1.0)

    def column() -> Any:
        return h.one((end(), end()), (end(), end(), "log"), [a(), a()], a())

    yield "Box", lambda: ma.Box(x=column(), y=column())
    yield "Box of bounds", lambda: ma.Box(a())
    box = h.one(
        ma.Box(x=(0.0, 1.0), n=(1, 5), c=["a", "b"]),
        ma.Box([[0, 1], [-5, 5]]),
        ma.Box(x=(1e-90, 1e90, "log")),
    )
    for name in ("points", "encode", "decode", "checked"):
        yield f"box.{name}", partial(getattr(box, name), a())
    yield "box.sample", lambda: box.sample(h.often(lambda: 3, 0.5), np.random.default_rng(0))

    def whole() -> Any:
        return ma.Box(x=(end(), end()), y=(end(), end(), "log"))

    yield "box round trip", lambda: round_trip(whole())


def round_trip(box: ma.Box) -> Any:
    """Points of a box, encoded."""
    return box.encode(box.decode(box.sample(3, np.random.default_rng(0))))


# What is used for a while


def told(policy: Any) -> Any:
    """All that a policy tells of its state, as a value that can be compared."""
    state = [policy.predict(), policy.counts, policy.beta]
    return repr([np.asarray(each).tobytes() for each in state[0]]), state[1].tobytes(), state[2]


def policy_session(h: Hostile) -> tuple[Any, Callable[[], Any], Iterator[Call]]:
    others = set(ma.baselines.__all__) - {
        "EstimatedNoise",
        "FixedDesign",
        "Incremental",
        "Insertion",
        "LocalBatch",
        "MiniMeta",
    }
    name = h.rng.choice(["BKB", "BKB", "BKB", "GPUCB", "GPUCB", "MiniMeta", *sorted(others)])
    table = rows(h)
    given = {"seed": h.rng.randrange(100)}
    if h.rng.random() < 0.5:
        given["regularization"] = h.often(lambda: 10.0 ** h.rng.uniform(-8, 4), 0.9)
    if name in ("BKB", "GPUCB") and h.rng.random() < 0.3:
        given["confidence"] = h.often(lambda: radius(h))
    if name == "BKB" and h.rng.random() < 0.4:
        given["rule"] = h.often(lambda: h.one(ma.Sampled(5.0), ma.Inserted(0.1, most=4)))
    more = {
        "SupKernelUCB": {"horizon": 50},
        "CBRAP": {"dimension": 2},
        "SOFUL": {"size": 2},
        "RFF": {"frequencies": 8},
        "SoR": {"inducing": 4},
        "DTC": {"inducing": 4},
    }.get(name, {})
    made: Any = (
        ma.GPUCB if name == "MiniMeta" else getattr(ma.baselines, name, getattr(ma, name, None))
    )
    linear = name in ("OFUL", "CBRAP", "SOFUL")
    policy = made(
        h.often(lambda: table, 0.95),
        *([] if linear else [h.often(lambda: kernel(h), 0.95)]),
        **given,
        **more,
    )
    policy = ma.baselines.MiniMeta(policy) if name == "MiniMeta" else policy

    def calls() -> Iterator[Call]:
        def arm() -> Any:
            return h.rng.randrange(12)

        def arms() -> Any:
            return h.often(lambda: [arm() for _ in range(h.one(1, 1, 2, 5))])

        def reward() -> Any:
            return h.one(*3 * [h.rng.gauss(0, 1)], *2 * [h.extreme()], h.real())

        def observe() -> Any:
            which = arms()
            n = len(which) if isinstance(which, list) else 1
            noise = h.one(None, None, None, h.real(), a())
            rewards = h.often(lambda: [reward() for _ in range(n)])
            return policy.observe(which, rewards, **({} if noise is None else {"noise": noise}))

        a = h.anything
        while True:
            yield from h.rng.sample(
                [
                    ("observe", observe),
                    ("observe", observe),
                    ("observe rows", lambda: policy.observe(table[[arm()]], [reward()])),
                    ("choose", lambda: policy.choose(h.often(lambda: h.one(1, 2, 3, None)))),
                    (
                        "choose pending",
                        lambda: policy.choose(pending=arms(), exclude=h.often(lambda: [arm()])),
                    ),
                    ("choose arms", lambda: policy.choose(arms=h.often(lambda: rows(h, 5), 0.5))),
                    ("predict", lambda: policy.predict(h.often(lambda: table[:3], 0.5))),
                    ("scores", policy.scores),
                    ("best", lambda: policy.best),
                    ("beta", lambda: (policy.beta, policy.effective_dimension)),
                ],
                1,
            )

    return policy, lambda: told(policy), calls()


def settings(h: Hostile) -> dict[str, Any]:
    given: dict[str, Any] = {
        "direction": h.one("maximize", "minimize"),
        "seed": h.rng.randrange(100),
    }
    for name, right in {
        "kernel": lambda: h.one("rbf", "matern", "linear", K.RBF(0.3)),
        "noise": lambda: h.one(0, 0.1, h.real()),
        "confidence": lambda: radius(h),
        "repeats": lambda: h.one("never", "allow", 2),
        "policy": lambda: h.one(ma.GPUCB, ma.BKB, ma.baselines.Thompson),
        "regularization": lambda: 0.1,
    }.items():
        if h.rng.random() < 0.2:
            given[name] = h.often(right, 0.9)
    return given


def told_by(known: Any) -> Any:
    """All that an optimizer tells of its state."""
    return repr([known.history, known.pending])


def using(known: Any, h: Hostile, ids: Callable[[], Any], row: Callable[[], Any]) -> Iterator[Call]:
    a = h.anything
    scale = 10.0 ** h.rng.choice([0, 0, 0, h.rng.uniform(-99, 99)])

    def value() -> Any:
        return h.one(*10 * [h.rng.gauss(0, scale)], *2 * [h.extreme()], h.real(), ma.FAILED)

    def tell() -> Any:
        which = h.often(lambda: [ids() for _ in range(h.one(1, 2, 4))], 0.9)
        n = len(which) if isinstance(which, list) else 1
        more = h.one(
            {},
            {},
            {},
            {"noise": h.one(abs(h.extreme()), h.real(), a())},
            {"failed": h.one(True, a())},
        )
        return known.tell(which, h.often(lambda: [value() for _ in range(n)], 0.9), **more)

    def correct() -> Any:
        history = known.history
        which = h.one(ids, lambda: h.one(*history) if history else None, a)()
        return known.correct(which, h.one(value(), value(), None, a()), noise=h.one(None, a()))

    def ask_some() -> Any:
        rules = h.one(
            {"where": h.one("x0 > 0.5", "c == 'a'", "x < ", np.ones(15, dtype=bool), a())},
            {"same": h.one("c", "x0", ["c"], a())},
            {"max_new": h.one({"c": 2}, {"x0": 1}, {"c": a()}, a())},
            {"most_each": h.one(1, 2, a())},
        )
        return known.ask(2, **rules)

    def undo() -> Any:
        return known.undo(h.one(None, None, h.rng.randrange(40), a()), note=h.one(None, a()))

    def level() -> Any:
        return h.often(lambda: 0.95)

    own = [("undo", undo)] if isinstance(known, ma.Study) else []
    while True:
        yield from h.rng.sample(
            [
                ("tell", tell),
                ("tell", tell),
                ("tell", tell),
                ("ask", lambda: known.ask(h.often(lambda: h.one(1, 2)))),
                ("best", lambda: known.best(level())),
                ("top", lambda: known.top(h.often(lambda: 3), level())),
                ("predict", lambda: known.predict(h.often(lambda: [ids()]), level())),
                ("predict_rows", lambda: known.predict_rows(h.often(row, 0.6), level=level())),
                ("certificate", lambda: known.certificate(h.often(lambda: None))),
                ("release", lambda: known.release(h.often(lambda: known.pending))),
                ("add", lambda: known.add(h.often(row, 0.6), ids=h.often(lambda: None, 0.9))),
                ("retire", lambda: known.retire(h.often(lambda: [ids()]))),
                ("restore", lambda: known.restore(h.often(lambda: [ids()]))),
                ("correct", correct),
                ("ask", ask_some),
                *own,
                ("noise", lambda: (known.noise, known.size, known.importance)),
            ],
            1,
        )


def table(h: Hostile) -> tuple[ma.Pool, Callable[[], Any], Callable[[], Any]]:
    """A pool, one of its ids, and rows that it would take."""
    if h.rng.random() < 0.5:
        X = np.random.default_rng(h.rng.randrange(1000)).random((15, 2))
        return ma.Pool.from_array(X), lambda: h.rng.randrange(15), lambda: rows(h, 2, 2)

    def made(i: int) -> Any:
        return {"id": f"m{i}", "x": (i * 7 % 15) / 15, "c": "abc"[i % 3]}

    pool = ma.Pool.from_dicts([made(i) for i in range(15)], id="id")
    return pool, lambda: f"m{h.rng.randrange(15)}", lambda: [made(h.rng.randrange(40))]


def optimizer_session(h: Hostile) -> tuple[Any, Callable[[], Any], Iterator[Call]]:
    pool, ids, row = table(h)
    known = ma.Optimizer(pool, **settings(h))
    return known, lambda: told_by(known), using(known, h, ids, row)


def box_session(h: Hostile) -> tuple[Any, Callable[[], Any], Iterator[Call]]:
    box = h.one(
        ma.Box(x=(0.0, 1.0), n=(1, 5), c=["a", "b"]),
        ma.Box([[0, 1], [-5, 5]]),
        ma.Box(x=(1e-90, 1e90, "log")),
    )
    given = settings(h)
    given.pop("policy", None)
    known = ma.Optimizer(box, **given)

    def ids() -> Any:
        return box.decode(box.sample(1, np.random.default_rng(h.rng.randrange(100))))[0]

    return known, lambda: told_by(known), using(known, h, ids, lambda: [ids()])


def study_session(h: Hostile) -> tuple[Any, Callable[[], Any], Iterator[Call]]:
    pool, ids, row = table(h)
    folder = tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None)
    h.last.callback(shutil.rmtree, folder)
    known = ma.Study.create(Path(folder) / "study.db", pool, **settings(h))
    h.last.callback(known.close)

    def state() -> Any:
        told = [event for event in known.events() if event.kind not in ("insert", "refit")]
        return repr([(event.number, event.kind) for event in told] + [known.history, known.pending])

    return known, state, using(known, h, ids, row)


def public_session(h: Hostile) -> tuple[Any, Callable[[], Any], Iterator[Call]]:
    """Anything public, by its signature; files are made in a directory that goes."""
    h.last.enter_context(contextlib.chdir(h.last.enter_context(tempfile.TemporaryDirectory())))
    thing, named = public.calls(h, h.rng.choice(public.OWNERS))
    return thing, lambda: public.state_of(thing), named


MAKING = {"kernels": kernels, "radii": radii, "pools": pools, "boxes": boxes}
SESSIONS = {
    "bandit": policy_session,
    "optimizers": optimizer_session,
    "box optimizers": box_session,
    "studies": study_session,
    "public": public_session,
}
WEIGHTS = {
    "kernels": 10,
    "radii": 8,
    "pools": 10,
    "boxes": 8,
    "bandit": 60,
    "optimizers": 8,
    "box optimizers": 1,
    "studies": 1,
    "public": 40,
}
"""How often each is drawn: cheap calls more often."""


def episode(
    seed: int, kinds: tuple[str, ...] = tuple(WEIGHTS), show: bool = False
) -> tuple[str, int, float]:
    """What was made, how many calls there were, and the seconds of the longest; FaultError where something must not happen."""
    h = Hostile(seed)
    kind = h.rng.choices(kinds, [WEIGHTS[each] for each in kinds])[0]
    n = slowest = 0
    with warnings.catch_warnings(), h.last:
        warnings.simplefilter("ignore")
        if kind in MAKING:
            for name, call in MAKING[kind](h):
                _, _, seconds = attempt(seed, name, call, show, finite=kind == "boxes")
                n, slowest = n + 1, max(slowest, seconds)
            return kind, n, slowest
        made, error, seconds = attempt(seed, kind, lambda: SESSIONS[kind](h), show, finite=False)
        n, slowest = 1, max(slowest, seconds)
        if error is not None:
            return kind, n, slowest
        _, state, calls = made
        before, _, _ = attempt(seed, "state", state, show, finite=False)
        for name, call in itertools.islice(calls, h.rng.choice([3, 10, 25])):
            _, error, seconds = attempt(seed, name, call, show)
            n, slowest = n + 1, max(slowest, seconds)
            after, _, _ = attempt(seed, "state", state, show, finite=False)
            if error is not None and after != before:
                raise FaultError(f"episode {seed}: {name} raised {error!r}, and changed the state")
            before = after
    return kind, n, slowest


def attempt(
    seed: int, name: str, call: Callable[[], Any], show: bool, finite: bool = True
) -> tuple[Any, Exception | None, float]:
    """The answer, or the typed error, and the seconds of the processor."""
    start = time.process_time()
    signal.setitimer(signal.ITIMER_VIRTUAL, LONGEST)
    try:
        answer, error = call(), None
        bad = [number for number in numbers_in(answer) if not np.isfinite(number)] if finite else []
        if bad:
            raise FaultError(f"episode {seed}: {name} answered {bad[0]}: {answer!s:.300}")
    except ManyArmsError as refused:
        answer, error = None, refused
    except FaultError:
        raise
    except TooLongError:
        raise FaultError(
            f"episode {seed}: {name} took more than {LONGEST} s\n{traceback.format_exc(limit=-4)}"
        ) from None
    except BaseException as unexpected:
        if isinstance(unexpected, KeyboardInterrupt):
            raise
        raise FaultError(
            f"episode {seed}: {name} raised {unexpected!r:.300}\n{traceback.format_exc(limit=-3)[-900:]}"
        ) from None
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    if show:
        print(
            f"{name}: {answer!r:.200}" if error is None else f"{name}: {error!r:.200}", flush=True
        )
    return answer, error, time.process_time() - start


def _too_long(*_: Any) -> None:
    raise TooLongError


def run(
    calls: int, seed: int = 0, kinds: tuple[str, ...] = tuple(WEIGHTS)
) -> tuple[Counter[str], float, list[str]]:
    """So many calls, from this episode on: how many of each kind, the slowest, and what must not happen."""
    signal.signal(signal.SIGVTALRM, _too_long)
    made: Counter[str] = Counter()
    slowest = 0.0
    faults = []
    while made.total() < calls:
        try:
            kind, n, seconds = episode(seed, kinds)
            made[kind] += n
            slowest = max(slowest, seconds)
        except FaultError as fault:
            faults.append(str(fault))
            made["faults"] += 1
            print(fault, flush=True)
        seed += 1
    return made, slowest, faults


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calls", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default=",".join(WEIGHTS))
    parser.add_argument("--episode", type=int)
    given = parser.parse_args()
    kinds = tuple(given.only.split(","))
    if given.episode is not None:
        signal.signal(signal.SIGVTALRM, _too_long)
        print(episode(given.episode, kinds, show=True))
    else:
        made, slowest, faults = run(given.calls, given.seed, kinds)
        print(
            f"{made.total():,} calls, {len(faults)} faults, slowest {slowest:.1f} s: {dict(made)}"
        )
        raise SystemExit(bool(faults))
