"""Kernels of strings by the words in them: k(x, y) = φ(x)ᵀφ(y)/(‖φ(x)‖ ‖φ(y)‖), a coordinate of φ
for each word.

With a `complement`, a string and its reverse complement are the same (the two strands of DNA): φ(x)
+ φ(x̄) stands for φ(x), which is k(x, y) + k(x, ȳ) up to scale, as k(x̄, ȳ) = k(x, y). A string
without a word is like other such strings only.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import combinations, product
from math import comb
from typing import Any

import numpy as np

from manyarms.checks import whole
from manyarms.errors import ArmsError, KernelError, shortened
from manyarms.kernels.bags import Bags, Numbers, cosines, ends_of
from manyarms.kernels.objects import NUMBER_LIMIT, PADDING, ObjectKernel, checked
from manyarms.typing import Array

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
                f"got {self.alphabet!r}"
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
                    f"pairs; got {self.complement!r}"
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
