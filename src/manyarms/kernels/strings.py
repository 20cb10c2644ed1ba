"""Kernels of strings by the words in them: k(x, y) = φ(x)ᵀφ(y)/(‖φ(x)‖ ‖φ(y)‖), a coordinate of φ for each word.

With a `complement`, a string and its reverse complement are the same (the two strands of DNA): φ(x) + φ(x̄) stands for φ(x),
which is k(x, y) + k(x, ȳ) up to scale, as k(x̄, ȳ) = k(x, y). A string without a word is like other such strings only.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, product
from typing import Any

import numpy as np

from manyarms.errors import ArmsError, KernelError
from manyarms.kernels.bags import Bags, cosines
from manyarms.kernels.objects import NOTHING, ObjectKernel, shortened
from manyarms.numbers import whole
from manyarms.typing import Array

LARGEST = 2**62
"""Words that there may be: they are numbered in 64 bits."""


@dataclass(frozen=True)
class Strings:
    """A string's row is the positions of its letters in the alphabet."""

    alphabet: str

    def __post_init__(self) -> None:
        if not isinstance(self.alphabet, str) or not self.alphabet or len(set(self.alphabet)) < len(self.alphabet):
            raise KernelError(f'alphabet must be a string of different letters, such as "ACGT", got {self.alphabet!r}')

    def encode(self, objects: Sequence[Any]) -> Array:
        """The letters of each string, (n, longest)."""
        for i, each in enumerate(objects):
            if not isinstance(each, str):
                raise ArmsError(f"arms must be strings, got {shortened(each)} of type {type(each).__name__} at {i}")
        longest = max(map(len, objects), default=1) or 1
        rows = np.full((len(objects), longest), NOTHING)
        for row, letters in zip(rows, objects, strict=True):
            try:
                row[: len(letters)] = [self._positions[letter] for letter in letters]
            except KeyError as error:
                raise ArmsError(
                    f"strings must be of the letters {self.alphabet!r}, got {error.args[0]!r} in {shortened(str(letters))}; "
                    "correct it, or give a larger alphabet"
                ) from error
        return rows

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {letter: position for position, letter in enumerate(self.alphabet)}

    def show(self, row: Array) -> str:
        """The string."""
        return repr("".join(self.alphabet[int(code)] for code in row if code != NOTHING))


@dataclass(frozen=True)
class Spectrum(ObjectKernel):
    """φ_w(x) = how often the word w of ``length`` letters is in the string x (Leslie, Eskin and Noble, PSB 2002).

    alphabet : all letters that occur, such as "ACGT".
    complement : the letter opposite each of the alphabet's, such as "TGCA", where a string and its reverse complement are
        the same; None where they are not.

    Sums blend lengths: ``Spectrum(2, "ACGT") + Spectrum(3, "ACGT")``.
    """

    length: int
    alphabet: str
    complement: str | None = None

    def __post_init__(self) -> None:
        whole(self.length, "length", error=KernelError)
        letters = len(self.encoder.alphabet)
        if letters**self.length > LARGEST:
            raise KernelError(f"words must be fewer than 2⁶², got {letters}^{self.length}; give a shorter length")
        if self.complement is not None:
            opposite = self._opposite
            if len(opposite) != letters or (opposite[opposite] != np.arange(letters)).any():
                raise KernelError(
                    f"complement must give the letter opposite each of {self.alphabet!r}, in pairs; got {self.complement!r}"
                )

    @cached_property
    def encoder(self) -> Strings:
        """Of strings over the alphabet."""
        return Strings(self.alphabet)

    @cached_property
    def _opposite(self) -> Bags:
        return np.asarray(self.encoder.encode([self.complement])[0], dtype=np.int64)

    def __call__(self, X: Array, Y: Array) -> Array:
        X, Y = np.asarray(X), np.asarray(Y)
        return cosines(self._both_strands(Y), lambda rows: self._both_strands(X[rows]), len(X))

    def diag(self, X: Array) -> Array:
        return np.ones(len(X))

    def _both_strands(self, X: Array) -> Bags:
        codes = X.astype(np.int64)
        if not self.complement:
            return self._words(codes)
        other = np.where(codes < 0, codes, self._opposite[codes])[:, ::-1]
        return np.hstack([self._words(codes), self._words(other)])

    def _words(self, codes: Bags) -> Bags:
        """The bag of words of each string, (n, …)."""
        return self._numbered(self._windows(codes))

    def _windows(self, codes: Bags) -> list[Bags]:
        """The first, second, … letters of all words, each (n, words); strings as short as one word have one column still."""
        missing = max(0, self.length - codes.shape[1])
        codes = np.pad(codes, ((0, 0), (0, missing)), constant_values=-1)
        n_words = codes.shape[1] - self.length + 1
        return [codes[:, j : j + n_words] for j in range(self.length)]

    def _numbered(self, letters: list[Bags]) -> Bags:
        """The number of each word, read as digits; −1 where it runs over the end of the string."""
        words, inside = np.zeros_like(letters[0]), letters[0] >= 0
        for letter in letters:
            words = words * len(self.alphabet) + letter
            inside = inside & (letter >= 0)
        return np.where(inside, words, -1)


@dataclass(frozen=True)
class Mismatch(Spectrum):
    """φ_w(x) = how many words of x differ from w in at most ``mismatches`` letters (Leslie et al., NIPS 2002).

    A word has Σ_{i≤m} C(k, i)(|alphabet| − 1)^i such neighbours, and as many times the cost of `Spectrum`.
    """

    mismatches: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if whole(self.mismatches, "mismatches", at_least=0, error=KernelError) >= self.length:
            raise KernelError(f"mismatches must be fewer than the length {self.length}, got {self.mismatches}")

    def _words(self, codes: Bags) -> Bags:
        letters, size = self._windows(codes), len(self.alphabet)
        bags = []
        for changes in range(self.mismatches + 1):
            for places in combinations(range(self.length), changes):
                for steps in product(range(1, size), repeat=changes):
                    changed = dict(zip(places, steps, strict=True))
                    bags.append(
                        self._numbered(
                            [np.where(c < 0, c, (c + changed[j]) % size) if j in changed else c for j, c in enumerate(letters)]
                        )
                    )
        return np.hstack(bags)
