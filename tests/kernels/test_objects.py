"""Kernels of strings, graphs and sets against their definitions; arms that are objects, at every level."""

from collections import Counter
from enum import IntEnum, StrEnum
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import manyarms as ma
from manyarms.errors import ArmsError, KernelError, ParameterError, UnknownArmError
from manyarms.kernels import (
    RBF,
    Graph,
    Jaccard,
    MinMax,
    Mismatch,
    ObjectKernel,
    On,
    OnObjects,
    Spectrum,
    Tanimoto,
    WeisfeilerLehman,
    bags,
)
from manyarms.kernels.bags import Strings

DNA = "ACGT"
STRANDS = {"alphabet": DNA, "complement": "TGCA"}
strings = st.lists(st.text(DNA, max_size=9), min_size=1, max_size=12)
graphs = st.lists(
    st.integers(1, 6).flatmap(
        lambda n: st.builds(
            lambda labels, edges: Graph(
                labels, sorted({(min(e), max(e)) for e in edges if e[0] != e[1]})
            ),
            st.lists(st.sampled_from("CNO"), min_size=n, max_size=n),
            st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=8),
        )
    ),
    min_size=1,
    max_size=8,
)
multisets = st.lists(
    st.dictionaries(st.sampled_from(["a", "b", 1, (1, "a")]), st.integers(0, 3)).map(Counter),
    min_size=1,
    max_size=10,
)


# The definitions


def cosine(features, objects):
    """φ(x)ᵀφ(y)/(‖φ(x)‖ ‖φ(y)‖) of Counters, 1 for two empty ones."""
    counted = [features(x) for x in objects]
    K = np.array([[sum(a[w] * b[w] for w in a) for b in counted] for a in counted], dtype=float)
    scale = np.sqrt(np.outer(np.diag(K), np.diag(K)))
    empty = np.diag(K) == 0
    return np.where(
        np.outer(empty, empty), 1.0, np.divide(K, scale, out=np.zeros_like(K), where=scale > 0)
    )


def words(x, k):
    return [x[i : i + k] for i in range(len(x) - k + 1)]


def mismatch_features(x, k, m):
    near = [
        sum(a != b for a, b in zip(u, w, strict=True)) <= m
        for u in product(DNA, repeat=k)
        for w in words(x, k)
    ]
    pairs = [("".join(u), w) for u in product(DNA, repeat=k) for w in words(x, k)]
    return Counter(u for (u, _), close in zip(pairs, near, strict=True) if close)


def opposite(x):
    return x[::-1].translate(str.maketrans("ACGT", "TGCA"))


def weisfeiler_lehman_features(graph, refinements):
    """Labels are the trees themselves."""
    labels, found = list(graph.labels), Counter()
    around = [
        [b for a, b in [*graph.edges, *((j, i) for i, j in graph.edges)] if a == node]
        for node in range(len(labels))
    ]
    for level in range(refinements + 1):
        found.update((level, label) for label in labels)
        labels = [
            (labels[node], tuple(sorted((labels[b] for b in near), key=repr)))
            for node, near in enumerate(around)
        ]
    return found


def gram(kernel, objects):
    X = kernel.encode(objects)
    return kernel(X, X)


def check(kernel, objects, expected):
    K = gram(kernel, objects)
    np.testing.assert_allclose(K, expected, atol=1e-12)
    np.testing.assert_array_equal(kernel.diag(kernel.encode(objects)), np.ones(len(objects)))
    assert np.linalg.eigvalsh(K).min() > -1e-9
    np.testing.assert_allclose(K, K.T, atol=1e-15)


@given(strings, st.integers(1, 4))
def test_the_spectrum_kernel_is_its_definition(objects, k):
    check(Spectrum(k, DNA), objects, cosine(lambda x: Counter(words(x, k)), objects))
    both = cosine(lambda x: Counter(words(x, k) + words(opposite(x), k)), objects)
    check(Spectrum(k, **STRANDS), objects, both)


@given(strings, st.integers(2, 3), st.integers(0, 2))
def test_the_mismatch_kernel_is_its_definition(objects, k, m):
    m = min(m, k - 1)
    check(
        Mismatch(k, DNA, mismatches=m),
        objects,
        cosine(lambda x: mismatch_features(x, k, m), objects),
    )
    both = cosine(
        lambda x: mismatch_features(x, k, m) + mismatch_features(opposite(x), k, m), objects
    )
    check(Mismatch(k, **STRANDS, mismatches=m), objects, both)


@given(strings)
def test_a_string_and_its_reverse_complement_are_the_same(objects):
    for kernel in (Spectrum(3, **STRANDS), Mismatch(3, **STRANDS)):
        X, Y = kernel.encode(objects), kernel.encode([opposite(x) for x in objects])
        np.testing.assert_allclose(kernel(X, X), kernel(X, Y), atol=1e-15)
        np.testing.assert_allclose(np.diag(kernel(X, Y)), 1.0)
    assert gram(Spectrum(3, DNA), ["AAC", "GTT"])[0, 1] == 0


@given(graphs, st.integers(0, 3))
def test_the_weisfeiler_lehman_kernel_is_its_definition(objects, refinements):
    expected = cosine(lambda graph: weisfeiler_lehman_features(graph, refinements), objects)
    check(WeisfeilerLehman(refinements), objects, expected)


def test_refinements_tell_graphs_apart_that_labels_do_not():
    path, star = Graph("CCCC", [(0, 1), (1, 2), (2, 3)]), Graph("CCCC", [(0, 1), (0, 2), (0, 3)])
    assert gram(WeisfeilerLehman(0), [path, star])[0, 1] == pytest.approx(1)
    assert gram(WeisfeilerLehman(1), [path, star])[0, 1] < 0.9
    renumbered = Graph("CCCC", [(3, 1), (1, 0), (0, 2)])
    assert gram(WeisfeilerLehman(3), [path, renumbered])[0, 1] == pytest.approx(1)


@given(graphs, st.integers(0, 2))
def test_a_graph_has_the_same_row_beside_any_others(objects, refinements):
    kernel = WeisfeilerLehman(refinements)
    together = kernel.encode(objects)
    for row, graph in zip(together, objects, strict=True):
        (alone,) = kernel.encode([graph])
        np.testing.assert_array_equal(
            row, np.pad(alone, (0, len(row) - len(alone)), constant_values=-1)
        )


def test_a_small_graph_that_comes_alone_is_the_arm_it_was_beside_a_large_one():
    kernel, small, large = (
        WeisfeilerLehman(2),
        Graph("CCO", [(0, 1), (1, 2)]),
        Graph("CCCCN", [(i, i + 1) for i in range(4)]),
    )
    policy = ma.BKB([small, large], kernel)
    policy.observe(kernel.encode([small]), [1.0])
    by_number = ma.BKB([small, large], kernel)
    by_number.observe([0], [1.0])
    np.testing.assert_allclose(policy.scores().variance, by_number.scores().variance, rtol=1e-12)
    assert len(ma.Pool.from_objects([small, large], kernel).add([small]).X) == 2


@given(multisets)
def test_the_kernel_of_multisets_is_minmax_and_that_of_sets_jaccard(objects):
    names = sorted({name for x in objects for name in x}, key=repr) or ["none"]
    X = np.array([[x[name] for name in names] for x in objects], dtype=float)
    expected = [
        [1.0 if not (x + y).any() else np.minimum(x, y).sum() / np.maximum(x, y).sum() for y in X]
        for x in X
    ]
    check(Jaccard(), objects, expected)
    np.testing.assert_allclose(MinMax()(X, X), expected)
    np.testing.assert_array_equal(MinMax().diag(X), np.ones(len(X)))
    sets = [{name for name in names if x[name]} for x in objects]
    check(Jaccard(), sets, Tanimoto()(X > 0, X > 0))
    check(Jaccard(), [Counter(x) for x in sets], Tanimoto()(X > 0, X > 0))


def test_minmax_of_negative_numbers_is_refused():
    for refused in (lambda: MinMax()([[1.0]], [[-1.0]]), lambda: MinMax().diag(np.array([[-1.0]]))):
        with pytest.raises(KernelError, match="bits or counts"):
            refused()


@given(strings, st.integers(1, 60))
def test_blocks_and_sparse_counts_change_nothing(objects, entries):
    kernel = Mismatch(2, **STRANDS)
    X = kernel.encode(objects)
    in_blocks = bags.cosines(X, X, kernel._bags, entries)
    np.testing.assert_allclose(in_blocks, gram(kernel, objects), atol=1e-15)


def test_equal_elements_are_one_and_hashes_are_the_same_everywhere():
    assert gram(Jaccard(), [{1, "a"}, [1.0, "a", "a"], (np.int64(1), "a"), {True, "a"}]).min() == 1
    assert (
        gram(
            Jaccard(), [{1, "a"}, {IntEnum("Whole", ["one"]).one, StrEnum("Letter", ["a"]).a}]
        ).min()
        == 1
    )
    assert gram(Jaccard(), [{1}, {"1"}, {(1,)}, {b"1"}, {None}]).sum() == 5
    assert Jaccard().encode([["ACGT"]])[0, 0] == 4354136964613618


# The algebra


def test_kernels_of_the_same_objects_combine():
    objects = ["ACGT", "AAAA", "CAGT", ""]
    two, three = Spectrum(2, DNA), Mismatch(3, DNA)
    X = two.encode(objects)
    policy = ma.GPUCB(objects, 0.5 * two + two * three)
    np.testing.assert_allclose(
        policy.kernel(policy.arms, policy.arms), 0.5 * two(X, X) + two(X, X) * three(X, X)
    )


@pytest.mark.parametrize(
    "kernel",
    [
        Spectrum(2, DNA) + RBF(1.0),
        RBF(1.0) * Spectrum(2, DNA),
        Spectrum(2, DNA) + Spectrum(2, "AB"),
        OnObjects(min) + OnObjects(min),
    ],
)
def test_kernels_of_different_objects_do_not(kernel):
    with pytest.raises(KernelError, match="different objects"):
        ma.GPUCB(["AB", "BA"], kernel)


class Lengths(ObjectKernel):
    """A kernel made elsewhere: strings are alike by their lengths."""

    encoder = Strings(DNA)

    def __call__(self, X, Y):
        return RBF(1.0)((X >= 0).sum(axis=1)[:, None], (Y >= 0).sum(axis=1)[:, None])

    def diag(self, X):
        return np.ones(len(X))


@pytest.mark.parametrize("kernel", [Lengths(), 0.5 * Lengths() + Spectrum(1, DNA)])
def test_a_kernel_of_objects_made_elsewhere(kernel):
    policy = ma.GPUCB(["A", "AC", "ACGTA"], kernel)
    policy.observe(2, 1.0)
    assert policy.predict(["ACGT"]).mean > 2 * policy.predict(["C"]).mean


def test_squares_of_many_bags_of_large_numbers():
    rng = np.random.default_rng(0)
    rows = rng.choice([-1, 0, 7, bags.NUMBER_LIMIT - 1], (2500, 6))
    expected = [
        sum(count**2 for word, count in Counter(row.tolist()).items() if word >= 0) for row in rows
    ]
    np.testing.assert_array_equal(bags.Bags.of(rows).squares(), expected)


# Arms that are objects


WORDS = ["".join(word) for word in product(DNA, repeat=4)]
KERNEL = 0.5 * Spectrum(2, **STRANDS) + 0.5 * Spectrum(3, **STRANDS)


def strength(word):
    return word.count("GA") + opposite(word).count("GA") + 0.1 * (word.count("C") + word.count("G"))


def overlap(x, y):
    return len(set(x) & set(y)) / len(set(x) | set(y))


@pytest.mark.parametrize(
    "policy",
    [
        ma.BKB,
        ma.GPUCB,
        lambda *a, **k: ma.BKB(*a, rule=ma.Sampled(5.0), **k),
        ma.baselines.Thompson,
    ],
)
def test_policies_on_objects_are_those_on_their_rows(policy):
    objects, rows = (
        policy(WORDS, KERNEL, seed=1),
        policy(Spectrum(2, DNA).encode(WORDS), KERNEL, seed=1),
    )
    for _ in range(15):
        (i,), (j,) = objects.choose(), rows.choose()
        assert i == j
        objects.observe(i, strength(WORDS[i]))
        rows.observe(j, strength(WORDS[j]))
    mean, std = objects.predict(["GA", WORDS[3], "TTGA"])
    np.testing.assert_allclose(mean[1], objects.predict().mean[3], atol=1e-9)
    assert mean[0] > 0.5
    assert (std > 0).all()
    np.testing.assert_array_equal(
        objects.predict(np.array(WORDS[:2])).mean, objects.predict(WORDS[:2]).mean
    )


@pytest.mark.parametrize("arms", [WORDS, np.array(WORDS)], ids=lambda x: type(x).__name__)
def test_maximize_gives_f_the_object(arms):
    seen = []
    found = ma.maximize(
        lambda x: seen.append(x) or strength(x), arms, budget=30, kernel=KERNEL, progress=False
    )
    assert all(isinstance(x, str) and x in WORDS for x in seen)
    assert [WORDS[trial.id] for trial in found.history] == seen
    assert strength(WORDS[found.best.recommended.id]) == max(map(strength, WORDS))


@pytest.mark.slow
def test_objects_of_any_kind():
    rng = np.random.default_rng(0)
    sets = [frozenset(rng.choice(12, 4).tolist()) for _ in range(60)]
    chains = [
        Graph(rng.choice(list("CNO"), n).tolist(), [(i, i + 1) for i in range(n - 1)])
        for n in rng.integers(2, 9, 60)
    ]
    for objects, kernel in (
        (sets, Jaccard()),
        (chains, WeisfeilerLehman()),
        (sets, OnObjects(overlap)),
    ):
        values = [float(len(x.labels) if isinstance(x, Graph) else sum(x)) for x in objects]
        found = ma.maximize(
            lambda x, values=values, objects=objects: values[objects.index(x)],  # type: ignore[misc]
            objects,
            budget=30,
            kernel=kernel,
            progress=False,
        )
        assert values[found.best.recommended.id] >= sorted(values)[-5]


def test_an_optimizer_of_objects_by_id_that_grows():
    pool = ma.Pool.from_objects([{1, 2}, {2, 3}, {1, 2}, {5}], Jaccard(), ids=["a", "b", "c", "d"])
    assert len(pool.X) == 3  # equal objects are one arm
    assert pool.row("b") == {"object": {2, 3}}
    assert pool.columns == {"object": "object"}
    assert repr(pool) == "Pool(4 candidates (3 distinct), 1 column: 1 object)"
    opt = ma.Optimizer(pool, noise=0.1)
    opt.tell(["a", "d"], [1.0, 0.0])
    before = opt.predict(["a", "b", "c"]).mean
    assert before[0] == before[2] > before[1]
    opt.add([{2}, {5}], ids=["e", "f"])
    assert opt.pool.row("e") == {"object": {2}}
    assert opt.pool.arm_of[5] == opt.pool.arm_of[3]
    np.testing.assert_allclose(opt.predict(["a", "b", "c"]).mean, before)
    state = repr(opt), opt.pool
    with pytest.raises(ArmsError, match="no larger"):
        opt.add([{1, 2, 3}], ids=["g"])
    with pytest.raises(ArmsError, match="must be new"):
        opt.add([{1}], ids=["a"])
    assert (repr(opt), opt.pool) == state
    assert set(opt.ask(3)) <= set("abcdef")


def test_the_kernel_of_a_pool_of_objects_may_be_another_of_the_same_objects():
    pool = ma.Pool.from_objects(WORDS, KERNEL)
    assert pool.kernel is KERNEL
    assert ma.Pool.from_array(np.eye(2)).kernel is None
    ma.Optimizer(pool, kernel=Spectrum(1, DNA))
    refused = [
        lambda: ma.Optimizer(pool, kernel=Jaccard()),
        lambda: ma.Optimizer(pool, kernel="tanimoto"),
        lambda: ma.Optimizer(np.eye(3), kernel=RBF(1.0) + Jaccard()),
        lambda: ma.Optimizer(ma.Pool.from_array(np.eye(2)), kernel=Jaccard()),
        lambda: ma.Pool.from_objects(WORDS, RBF(1.0)),
        lambda: ma.Pool.from_objects(WORDS, min),
    ]
    for build in refused:
        with pytest.raises((ParameterError, KernelError)):
            build()


def test_a_pool_of_objects_is_not_stored(tmp_path):
    with pytest.raises(ParameterError, match="cannot be stored"):
        ma.Study.create(tmp_path / "study.db", ma.Pool.from_objects(WORDS, KERNEL), kernel=KERNEL)


@pytest.mark.parametrize("policy", [ma.BKB, ma.GPUCB])
def test_another_set_of_objects_at_every_choice(policy):
    """By value or encoded, padded to the width of the policy; one too large is refused."""
    rng, kernel = np.random.default_rng(0), Spectrum(2, DNA)
    alone, beside = (
        policy(None, kernel, n_features=9, seed=1),
        policy(["ACGTACGTA"], kernel, seed=1),
    )
    for _ in range(12):
        offers = ["".join(rng.choice(list(DNA), n)) for n in rng.integers(1, 10, 5)]
        rows = kernel.encode(offers)
        (i,) = alone.choose(arms=offers)
        assert alone.choose(arms=rows) == beside.choose(arms=rows) == [i]
        for each in (alone, beside):
            each.observe(rows[[i]], [strength(offers[i])])
    assert alone.predict(["GAGAGA"]).mean > alone.predict(["TTTTTT"]).mean
    before = alone._state
    for bad in (["ACGTACGTAC"], ["AXG"], [], [3]):
        with pytest.raises(ArmsError):
            alone.choose(arms=bad)
    assert alone._state is before


@pytest.mark.parametrize(
    ("kernel", "thing"),
    [
        (Spectrum(2, DNA), "ACG"),
        (WeisfeilerLehman(1), Graph("CC", [(0, 1)])),
        (2.0 * Jaccard(), {1, 2}),
    ],
)
@pytest.mark.parametrize("table", [False, True])
def test_objects_given_in_place_of_their_rows_are_told_how(kernel, thing, table):
    policy = ma.BKB([thing], kernel) if table else ma.BKB(None, kernel, n_features=9)
    for refused in (
        lambda: policy.observe([thing], [1.0]),
        lambda: policy.choose(arms=[thing], pending=[thing]),
    ):
        with pytest.raises(ArmsError, match=r"kernel.encode\(objects\)") as error:
            refused()
        assert "-1" not in str(error.value)
    with pytest.raises(UnknownArmError):
        policy.observe([7], [1.0])
    assert not policy.evidence.n_observations


def test_an_object_that_comes_again_has_the_number_it_had():
    kernel, sets = OnObjects(overlap), [{1, 2}, {2, 3}, {4}]
    np.testing.assert_array_equal(kernel.encode(sets), kernel.encode(sets))
    np.testing.assert_array_equal(
        kernel.encode([sets[2], sets[0], {4}]), [[2], [0], [3]]
    )  # equal, but another
    assert kernel.encode([]).shape == (0, 1)


# What cannot be


@pytest.mark.parametrize("policy", [ma.BKB, ma.GPUCB])
def test_a_function_that_is_no_kernel_is_an_error_naming_two_objects_and_changes_nothing(policy):
    names = ["ant", "bee", "cow"]
    K = {
        "antbee": 0.9,
        "beecow": 0.9,
        "antcow": 0.0,
    }  # each pair is possible, the three together are not

    def similarity(x, y):
        return 1.0 if x == y else K["".join(sorted([x, y]))]

    bandit = policy(names, OnObjects(similarity), regularization=1e-3)
    bandit.observe([0], [1.0])
    before = bandit.predict()
    with pytest.raises(
        KernelError, match=r"not positive semi-definite.*x = '(ant|bee|cow)'.*y = '(ant|bee|cow)'"
    ):
        bandit.observe([2, 1], [1.0, 1.0])
    np.testing.assert_array_equal(bandit.predict(), before)
    assert bandit.counts.tolist() == [1, 0, 0]
    with pytest.raises(KernelError, match=r"k\(x, y\).*x = 'ant', y = 'bee'"):
        policy(names[:2], OnObjects(lambda x, y: 1.0 if x == y else 1.5))
    with pytest.raises(KernelError, match=r"not symmetric.*'ant'.*'bee'"):
        policy(names[:2], OnObjects(lambda x, y: 1.0 if x == y else float(x < y) / 2))
    with pytest.raises(KernelError, match=r"not negative, got -1.0 at x = 'ant'"):
        policy(names, OnObjects(lambda x, y: -1.0))


@pytest.mark.parametrize(
    ("kernel", "objects", "words"),
    [
        (Spectrum(2, DNA), ["ACG", "AXG"], "'X' in 'AXG'"),
        (Spectrum(2, DNA), ["ACG", 3], "strings, got 3"),
        (Spectrum(2, DNA), "ACGT", "sequence of objects"),
        (Spectrum(2, DNA), {"ACGT"}, "sequence of objects"),
        (Spectrum(2, DNA), [], "at least one arm"),
        (WeisfeilerLehman(), [Graph("CC", [(0, 2)])], "nodes from 0 to 1"),
        (WeisfeilerLehman(), [Graph("CC", [(0, 1.5)])], "nodes from 0 to 1"),
        (WeisfeilerLehman(), [Graph("CCC", [(0, 1, 2), (1, 2, 0)])], "pairs of nodes from 0 to 2"),
        (WeisfeilerLehman(), [Graph("CCC", [0, 1, 1, 2])], "pairs of nodes from 0 to 2"),
        (WeisfeilerLehman(), [Graph("CC", {(0, 1)})], "pairs of nodes from 0 to 1"),
        (WeisfeilerLehman(), [Graph(3, [])], "labels and its edges"),
        (WeisfeilerLehman(), ["CCC"], "labels and its edges"),
        (WeisfeilerLehman(), [3], "labels and its edges"),
        (WeisfeilerLehman(), [Graph([object()], [])], "strings, numbers or tuples"),
        (Jaccard(), ["ab"], "sets, lists or counters"),
        (Jaccard(), [7], "sets, lists or counters"),
        (Jaccard(), [{"a": -1}], "counts must be whole"),
        (RBF(1.0), ["ab", "b"], "encode other columns"),
    ],
)
def test_objects_that_a_kernel_cannot_take(kernel, objects, words):
    with pytest.raises(ArmsError, match=words):
        ma.BKB(objects, kernel)


def numbered():
    kernel = OnObjects(overlap)
    kernel.encode([{1}, {2}])
    return kernel


@pytest.mark.parametrize(
    "build",
    [
        lambda: Spectrum(0, DNA),
        lambda: Spectrum(2, ""),
        lambda: Spectrum(2, "AA"),
        lambda: Spectrum(2, 4),
        lambda: Spectrum(40, DNA),
        lambda: Spectrum(2, DNA, "TGC"),
        lambda: Spectrum(2, DNA, "CGTA"),
        lambda: Mismatch(2, DNA, mismatches=2),
        lambda: Mismatch(2, DNA, mismatches=-1),
        lambda: WeisfeilerLehman(-1),
        lambda: OnObjects(3),
        lambda: OnObjects(overlap)(np.zeros((1, 1)), np.zeros((1, 1))),
        lambda: numbered().diag(np.array([[0.5]])),
    ],
)
def test_what_cannot_be_a_kernel_of_objects(build):
    with pytest.raises((KernelError, ArmsError)):
        build()


@pytest.mark.parametrize(
    ("kernel", "rows"),
    [
        (Spectrum(2, DNA), [[7.0, 9.0, 1.0]]),
        (Spectrum(2, **STRANDS), [[7.0, 9.0, 1.0]]),
        (Mismatch(2, **STRANDS), [[0.0, 4.0, 1.0]]),
        (Spectrum(2, DNA), [[0.0, 0.5, 1.0]]),
        (Jaccard(), [[1.2, 1.7], [1.1, 1.9]]),
        (Jaccard(), [[1.0, -2.0]]),
        (WeisfeilerLehman(1), [[1.0, 2.0**52]]),
    ],
)
def test_rows_that_no_encoder_made(kernel, rows):
    X = np.array(rows)
    for refused in (
        lambda: ma.BKB(X, kernel),
        lambda: ma.GPUCB(X, 2.0 * kernel),
        lambda: kernel(X, X),
        lambda: kernel.diag(X),
    ):
        with pytest.raises(ArmsError, match=r"kernel.encode\(objects\)"):
            refused()
    policy = ma.BKB(None, kernel, n_features=X.shape[1])
    for refused in (
        lambda: policy.observe(X, np.ones(len(X))),
        lambda: policy.choose(arms=X),
        lambda: policy.predict(X),
    ):
        with pytest.raises(ArmsError, match=r"kernel.encode\(objects\)"):
            refused()
    beside = np.hstack([X, np.ones((len(X), 1))])  # numbers beside the object
    with pytest.raises(ArmsError, match=r"kernel.encode\(objects\)"):
        ma.BKB(beside, On(kernel, 0, X.shape[1]) * On(RBF(1.0), X.shape[1], X.shape[1] + 1))
    assert not policy.evidence.n_observations


def test_predicting_a_larger_object_is_refused_and_a_smaller_one_is_not():
    policy = ma.BKB(["ACG", "CC"], Spectrum(2, DNA))
    with pytest.raises(ArmsError, match="no larger"):
        policy.predict(["ACGT"])
    assert policy.predict(["A"]).mean == 0
    assert Spectrum(2, DNA).encoder.show(policy.arms[1]) == "'CC'"
    assert (
        WeisfeilerLehman().encoder.show(
            WeisfeilerLehman().encode([Graph("CC", []), Graph("C", [])])[1]
        )
        == "a graph of 1 nodes"
    )
    assert Jaccard().encoder.show(Jaccard().encode([{1, 2}, {1}])[1]) == "a set of 1 elements"
    assert repr(OnObjects(overlap)) == "OnObjects(overlap)"


def test_edges_may_be_small_integers():
    kernel = ma.kernels.WeisfeilerLehman()
    labels = ["a", "b", "c"] * 100
    small = [(labels, np.array([(0, 1), (25, 99)], dtype=np.uint8)) for _ in range(3)]
    wide = [(labels, [(0, 1), (25, 99)]) for _ in range(3)]
    rows = [kernel.encoder.encode(graphs) for graphs in (small, wide)]
    np.testing.assert_array_equal(rows[0], rows[1])
    with pytest.raises(ArmsError, match="edges must be pairs"):
        kernel.encoder.encode([(["a"], np.array([(0, 1)], dtype=np.uint8))])
