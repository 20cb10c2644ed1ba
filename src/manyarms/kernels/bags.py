"""Bags of numbers, some of them perhaps more than once: what sets, graphs and strings have in
common; and their kernels.

With c_w(x) how often w is in the bag x, they need Σ_w c_w(x) c_w(y). A string is compared by the
words in it: k(x, y) = φ(x)ᵀφ(y)/(‖φ(x)‖ ‖φ(y)‖), a coordinate of φ for each word. With a
`complement`, a string and its reverse complement are the same (the two strands of DNA): φ(x) + φ(x̄)
stands for φ(x), which is k(x, y) + k(x, ȳ) up to scale, as k(x̄, ȳ) = k(x, y). A string without a
word is like other such strings only.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from hashlib import blake2b
from itertools import combinations, product
from math import comb
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy

from manyarms.checks import NO_ARRAY, is_whole, items_of, whole
from manyarms.errors import ArmsError, KernelError, shortened
from manyarms.kernels.objects import NUMBER_LIMIT, PADDING, ObjectKernel, checked
from manyarms.typing import AnyArray, Array, Indices

AT_ONCE = 1 << 22
"""Numbers held at a time: 32 MiB of int64."""
HASHED_TYPES = str | bytes | int | float | None
"""What can be hashed the same everywhere; tuples of such too."""
MOST_COPIES = 10_000
"""Of an element in a multiset: each is a number of the row."""

Numbers = npt.NDArray[np.int64]


class Bags(NamedTuple):
    """Bag i holds ``numbers[starts[i]:starts[i + 1]]``."""

    numbers: Numbers
    starts: Indices  # (n + 1,)

    @classmethod
    def of(cls, rows: Array, below: int = NUMBER_LIMIT) -> "Bags":
        """The numbers of each row that are not negative, all below some number."""
        held = checked(rows, below) >= 0
        return cls(rows[held].astype(np.int64), ends_of(held.sum(axis=1)))

    @property
    def n(self) -> int:
        """How many bags."""
        return len(self.starts) - 1

    def counts(self, words: Numbers) -> Any:
        """c_w of each bag, for some words in ascending order, (n, w), sparse."""
        # Other words get the weight 0, at whatever place they would stand.
        at = np.minimum(np.searchsorted(words, self.numbers), len(words) - 1)
        known = (words[at] == self.numbers).astype(np.float64)
        return scipy.sparse.csr_array((known, at, self.starts), shape=(self.n, len(words)))

    def squares(self) -> Array:
        """Σ_w c_w(x)², (n,)."""
        words = np.unique(self.numbers)
        bag = np.repeat(np.arange(self.n), np.diff(self.starts))
        # A key for each pair of a bag and a word: how often it comes is c_w(x).
        keys = bag * len(words) + np.searchsorted(words, self.numbers)
        pairs, counts = np.unique(keys, return_counts=True)
        of_bags = np.bincount(pairs // max(1, len(words)), np.square(counts), self.n)
        return of_bags.astype(np.float64)


def ends_of(sizes: npt.NDArray[np.integer[Any]]) -> Indices:
    """Where parts of these sizes start, and where the last ends."""
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.intp)


def shared(X: Bags, Y: Bags, scale: Array | None = None, entries: int = AT_ONCE) -> Array:
    """Σ_w c_w(x) c_w(y), (n, m); b·c_w(y) for c_w(y) where `scale` holds b (m,)."""
    words = np.unique(Y.numbers)
    if not len(words):
        return np.zeros((X.n, Y.n))
    counts = Y.counts(words).T if scale is None else Y.counts(words).T * scale
    # Dense while it is small: what comes of a product with it is dense in any case.
    K = X.counts(words) @ (counts.toarray() if len(words) * Y.n <= entries else counts)
    return np.asarray(K if isinstance(K, np.ndarray) else K.toarray())


def cosines(X: Array, Y: Array, bags: Callable[[Array], Bags], entries: int = AT_ONCE) -> Array:
    """Σ_w c_w(x) c_w(y)/√(Σ_w c_w(x)² Σ_w c_w(y)²), (n, m), of the bags of all rows; 1 for two
    empty ones.

    About so many `entries` are held at a time.
    """
    theirs = bags(Y)
    sizes = theirs.squares()
    K = np.empty((len(X), len(Y)))
    # As many rows of X as have some `entries` numbers, if they are as large as those of Y.
    step = max(1, entries * len(Y) // max(1, len(theirs.numbers)))
    for start in range(0, len(X), step):
        ours = bags(X[start : start + step])
        size = ours.squares()
        block = shared(ours, theirs, 1 / np.sqrt(np.maximum(sizes, 1)), entries)
        block /= np.sqrt(np.maximum(size, 1))[:, None]
        block[np.ix_(size == 0, sizes == 0)] = 1.0  # two empty bags are alike
        K[start : start + step] = block
    return K


@dataclass(frozen=True)
class Sets:
    """A set's row is its elements, hashed to 52 bits; the j-th copy of an element of a multiset is
    an element of its own."""

    def encode(self, objects: Sequence[Any]) -> Array:
        """The elements of each set, (n, most elements)."""
        # 52 of the 64 bits, which float64 holds; sorted, so that equal sets have equal rows.
        bags = [
            sorted({number(element) >> 12 for element in _elements(each, i)})
            for i, each in enumerate(objects)
        ]
        rows = np.full((len(bags), max(map(len, bags), default=1) or 1), PADDING)
        for row, bag in zip(rows, bags, strict=True):
            row[: len(bag)] = bag
        return rows

    def show(self, row: Array) -> str:
        """The size is all that a row tells."""
        return f"a set of {int((row != PADDING).sum())} elements"


@dataclass(frozen=True)
class Jaccard(ObjectKernel):
    """k(x, y) = |x ∩ y|/|x ∪ y| of sets; of multisets Σ min/Σ max of their counts, the MinMax
    kernel; 1 for two empty ones.

    Arms are sets or other iterables, or mappings from elements to counts such as
    `collections.Counter`. Elements are strings, numbers and tuples of such.
    """

    encoder = Sets()

    def __call__(self, X: Array, Y: Array) -> Array:
        X = np.asarray(X)
        Y = np.asarray(Y)
        K = shared(Bags.of(X), Bags.of(Y))  # |x ∩ y|: no element is twice in a row
        union = (X >= 0).sum(axis=1)[:, None] + (Y >= 0).sum(axis=1) - K
        return np.asarray(np.divide(K, union, out=np.ones_like(K), where=union > 0))


def number(thing: Any) -> int:
    """64 bits of a string, a number or a tuple of such; the same for what is equal, in every
    process."""
    if isinstance(thing, np.generic):
        thing = thing.item()
    if isinstance(thing, int) or (isinstance(thing, float) and thing.is_integer()):
        thing = int(thing)  # 1 == 1.0 == True, and members of an IntEnum
    elif isinstance(thing, str):
        thing = str.__str__(thing)
    if isinstance(thing, tuple):
        thing = ("tuple", *map(number, thing))
    elif not isinstance(thing, HASHED_TYPES):
        raise ArmsError(
            "labels and elements must be strings, numbers or tuples of such, got "
            f"{shortened(thing)} of type "
            f"{type(thing).__name__}; convert them"
        )
    try:
        text = repr(thing)
    except ValueError as error:  # Python writes no number of 4,301 digits
        raise ArmsError(f"labels and elements must be such as can be written: {error}") from error
    # Python's own hash of a string differs from process to process.
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")


def _elements(each: Any, at: int) -> Iterable[Any]:
    elements = items_of(each)
    if elements is None:
        raise ArmsError(
            f"arms must be sets, lists or counters of elements, got {shortened(each)} at {at}"
        )
    if not isinstance(each, Mapping):
        return elements
    for element, count in each.items():
        if not (is_whole(count) or isinstance(count, bool)) or not 0 <= count <= MOST_COPIES:
            raise ArmsError(
                f"counts must be whole numbers from 0 to {MOST_COPIES:,}, got {shortened(count)} "
                f"of {shortened(element)} at {at}"
            )
    # Copy 0 is the element itself: a set and a counter of ones have equal rows.
    return [
        ("copy", j, element) if j else element
        for element, count in each.items()
        for j in range(count)
    ]


class Graph(NamedTuple):
    """Nodes with labels, and edges between them.

    Parameters
    ----------
    labels : sequence
        A label for each node: strings, numbers or tuples of such.
    edges : sequence of pairs
        Numbers of nodes, from 0 on, each edge once.
    """

    labels: Sequence[Hashable]
    edges: Sequence[tuple[int, int]]


@dataclass(frozen=True)
class Graphs:
    """A graph's row is the labels of its nodes, at first and after each refinement, as numbers of
    52 bits.

    A refinement gives nodes the same new label where their labels and the multisets of their
    neighbours' labels are the same. Labels are hashed: among a million different ones two are alike
    with probability 1e-4.
    """

    refinements: int

    def encode(self, objects: Sequence[Any]) -> Array:
        """All graphs refined at once, as one graph, (n, (refinements + 1)·most nodes): rows do not
        depend on each other."""
        sizes, labels, edges = _union(objects)
        levels = [labels]
        for _ in range(self.refinements):
            # A multiset is hashed by the sum of its elements' hashes, which no order changes.
            around = np.zeros_like(labels)
            np.add.at(around, edges[:, 0], _mixed(labels, 1)[edges[:, 1]])
            labels = _mixed(labels + _mixed(around, 2), 3)
            levels.append(labels)
        # 52 of 64 bits. Each level is mixed another way: a label counts for its own level only.
        codes = np.concatenate(
            [_mixed(labels, level) >> np.uint64(12) for level, labels in enumerate(levels)]
        )
        # Codes lie level by level through all graphs; a stable sort brings each graph's together.
        graph = np.tile(np.repeat(np.arange(len(sizes)), sizes), len(levels))
        rows = np.full((len(sizes), len(levels) * int(sizes.max(initial=1))), PADDING)
        held = np.arange(rows.shape[1]) < len(levels) * sizes[:, None]
        rows[held] = codes[np.argsort(graph, kind="stable")]
        return rows

    def show(self, row: Array) -> str:
        """The size is all that a row tells."""
        return f"a graph of {int((row != PADDING).sum()) // (self.refinements + 1)} nodes"


@dataclass(frozen=True)
class WeisfeilerLehman(ObjectKernel):
    """φ_l(x) = how many nodes of the graph x have the label l, at first or after a refinement.

    The subtree kernel of Shervashidze et al. (JMLR 2011), normalised: k(x, x) = 1. Arms are
    `Graph`s, or pairs like them.

    Parameters
    ----------
    refinements : int
        How often labels are refined: a label then stands for a neighbourhood of that radius.
    """

    refinements: int = 2

    def __post_init__(self) -> None:
        whole(self.refinements, "refinements", at_least=0, at_most=100, error=KernelError)

    @property
    def encoder(self) -> Graphs:
        """Of graphs, refined so often."""
        return Graphs(self.refinements)

    def __call__(self, X: Array, Y: Array) -> Array:
        return cosines(np.asarray(X), np.asarray(Y), Bags.of)


def _union(objects: Sequence[Any]) -> tuple[Indices, AnyArray, Indices]:
    """Of all graphs side by side: nodes of each (n,), hashed labels (v,), edges in both directions
    (e, 2)."""
    sizes = np.zeros(len(objects), dtype=np.intp)
    labels: list[int] = []
    edges = [np.zeros((0, 2), dtype=np.intp)]
    for i, each in enumerate(objects):
        try:
            names, pairs = each
            sizes[i] = len(names)
            ends = np.asarray(pairs) if len(pairs) else np.zeros((0, 2), dtype=np.intp)
        except NO_ARRAY as error:
            raise ArmsError(
                f"a graph is its labels and its edges, pairs of nodes; got {shortened(each)} at {i}"
            ) from error
        pairwise = ends.ndim == 2 and ends.shape[1] == 2 and ends.dtype.kind in "iu"
        inside = pairwise and (not ends.size or (ends.min() >= 0 and ends.max() < len(names)))
        if not inside:
            raise ArmsError(
                f"edges must be pairs of nodes from 0 to {len(names) - 1}, got "
                f"{shortened(pairs)} at {i}"
            )
        edges.append(ends.astype(np.intp) + len(labels))  # nodes are numbered through all graphs
        labels += [number(name) for name in names]
    joined = np.concatenate(edges).astype(np.intp)
    return sizes, np.array(labels, dtype=np.uint64), np.concatenate([joined, joined[:, ::-1]])


def _mixed(labels: AnyArray, round: int) -> AnyArray:
    """Numbers of 64 bits scrambled (SplitMix64's finaliser), another way in each round."""
    x = labels + np.uint64((round + 1) * 0x9E3779B97F4A7C15 % 2**64)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(x ^ (x >> np.uint64(31)))


LONGEST_WORD = 52
"""Letters of a word, at most: as many as words over two letters can have."""
NEIGHBOURS = 100_000
"""Words that one word may count as, at most: each takes its turn."""


@dataclass(frozen=True)
class Strings:
    """A string's row is the positions of its letters in the alphabet."""

    alphabet: str

    def __post_init__(self) -> None:
        if (
            not isinstance(self.alphabet, str)
            or not self.alphabet
            or len(set(self.alphabet)) < len(self.alphabet)
        ):
            raise KernelError(
                'alphabet must be a string of different letters, such as "ACGT", '
                f"got {shortened(self.alphabet)}"
            )

    def encode(self, objects: Sequence[Any]) -> Array:
        """The letters of each string, (n, longest)."""
        for i, each in enumerate(objects):
            if not isinstance(each, str):
                raise ArmsError(
                    f"arms must be strings, got {shortened(each)} of type "
                    f"{type(each).__name__} at {i}"
                )
        longest = max(map(len, objects), default=1) or 1  # a row has one column at least
        rows = np.full((len(objects), longest), PADDING)
        positions = {letter: position for position, letter in enumerate(self.alphabet)}
        for row, letters in zip(rows, objects, strict=True):
            unknown = [letter for letter in letters if letter not in positions]
            if unknown:
                raise ArmsError(
                    f"strings must be of the letters {self.alphabet!r}, got {unknown[0]!r} "
                    f"in {shortened(str(letters))}; correct it, or give a larger alphabet"
                )
            row[: len(letters)] = [positions[letter] for letter in letters]
        return rows

    def show(self, row: Array) -> str:
        """The string."""
        return repr("".join(self.alphabet[int(code)] for code in row if code != PADDING))


@dataclass(frozen=True)
class Spectrum(ObjectKernel):
    """φ_w(x) = how often the word w of ``length`` letters is in the string x (Leslie, Eskin and
    Noble, PSB 2002).

    Sums blend lengths: ``Spectrum(2, "ACGT") + Spectrum(3, "ACGT")``.

    Parameters
    ----------
    length : int
        Letters of a word.
    alphabet : str
        All letters that occur, such as "ACGT".
    complement : str, optional
        The letter opposite each of the alphabet's, such as "TGCA", where a string and its reverse
        complement are the same.
    """

    length: int
    alphabet: str
    complement: str | None = None

    def __post_init__(self) -> None:
        whole(self.length, "length", error=KernelError)
        letters = len(self.encoder.alphabet)
        if self.length > LONGEST_WORD or self.length * np.log2(letters) > np.log2(NUMBER_LIMIT):
            raise KernelError(
                f"words must be fewer than 2⁵² and of at most {LONGEST_WORD} letters, got "
                f"{letters}^{shortened(self.length)}; give a shorter length"
            )
        if self.complement is not None:
            opposite = self._opposite
            # The opposite of the opposite is the letter itself.
            if len(opposite) != letters or (opposite[opposite] != np.arange(letters)).any():
                raise KernelError(
                    f"complement must give the letter opposite each of {self.alphabet!r}, in "
                    f"pairs; got {shortened(self.complement)}"
                )

    @cached_property
    def encoder(self) -> Strings:
        """Of strings over the alphabet."""
        return Strings(self.alphabet)

    @cached_property
    def _opposite(self) -> Numbers:
        return np.asarray(self.encoder.encode([self.complement])[0], dtype=np.int64)

    def __call__(self, X: Array, Y: Array) -> Array:
        return cosines(np.asarray(X), np.asarray(Y), self._bags)

    def diag(self, X: Array) -> Array:
        return np.ones(len(checked(np.asarray(X), len(self.alphabet))))

    def _bags(self, rows: Array) -> Bags:
        """The words of each string, and those of its reverse complement."""
        codes, starts = Bags.of(rows, len(self.alphabet))
        # A string of s letters has s − k + 1 words; `at` is where each starts among all letters.
        sizes = np.maximum(np.diff(starts) - self.length + 1, 0)
        ends = ends_of(sizes)
        at = np.arange(ends[-1]) + np.repeat(starts[:-1] - ends[:-1], sizes)
        words = self._words([codes[at + j] for j in range(self.length)])
        if self.complement:
            # The word read backwards, each letter by its opposite: φ(x) + φ(x̄).
            words += self._words(
                [self._opposite[codes[at + j]] for j in reversed(range(self.length))]
            )
        return Bags(np.stack(words, axis=1).ravel(), ends * len(words))

    def _words(self, letters: list[Numbers]) -> list[Numbers]:
        """What each word, given by its letters (e,), counts as: itself."""
        return [self._number(letters)]

    def _number(self, letters: list[Numbers]) -> Numbers:
        """The letters of words read as digits, (e,)."""
        return reduce(lambda number, letter: number * len(self.alphabet) + letter, letters)


@dataclass(frozen=True)
class Mismatch(Spectrum):
    """φ_w(x) = how many words of x differ from w in at most ``mismatches`` letters (Leslie et al.,
    NIPS 2002).

    A word has Σ_{i≤m} C(k, i)(|alphabet| − 1)^i such neighbours, and as many times the cost of
    `Spectrum`.

    Parameters
    ----------
    length : int
        Letters of a word, k.
    alphabet : str
        All letters that occur.
    complement : str, optional
        As for `Spectrum`.
    mismatches : int
        m, how many letters may differ; fewer than `length`.
    """

    mismatches: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if whole(self.mismatches, "mismatches", at_least=0, error=KernelError) >= self.length:
            raise KernelError(
                f"mismatches must be fewer than the length {self.length}, got "
                f"{shortened(self.mismatches)}"
            )
        others = len(self.alphabet) - 1
        neighbours = sum(comb(self.length, i) * others**i for i in range(self.mismatches + 1))
        if neighbours > NEIGHBOURS:
            raise KernelError(
                f"a word must have at most {NEIGHBOURS:,} neighbours, got {neighbours:,}; give "
                "fewer mismatches or a shorter length"
            )

    def _words(self, letters: list[Numbers]) -> list[Numbers]:
        """All words that differ in so few letters."""
        size = len(self.alphabet)
        number = self._number(letters)
        words = []
        for changes in range(self.mismatches + 1):
            for places in combinations(range(self.length), changes):
                for steps in product(range(1, size), repeat=changes):
                    changed = number.copy()
                    for place, step in zip(places, steps, strict=True):
                        # A step of 1 to size − 1 along the alphabet, round its end, is each other
                        # letter once; the digit at `place` counts size^(k − 1 − place).
                        letter = letters[place]
                        digit = size ** (self.length - 1 - place)
                        changed += ((letter + step) % size - letter) * digit
                    words.append(changed)
        return words
