"""The posterior in 80 digits (mpmath), written apart from the engine: plain inverses of the textbook matrices."""

from collections.abc import Callable
from dataclasses import dataclass

import mpmath as mp
import numpy as np

mp.mp.dps = 80

Kernel = Callable[[list[mp.mpf], list[mp.mpf]], mp.mpf]


def exact(values):
    """A float64 array as mpf numbers, without rounding."""
    return [mp.mpf(float(v)) for v in np.ravel(values)]


def rows(X):
    return [exact(x) for x in X]


def _distance2(x, y, lengthscale):
    return sum(((a - b) / ell) ** 2 for a, b, ell in zip(x, y, lengthscale, strict=True))


def rbf(lengthscale) -> Kernel:
    scales = exact(lengthscale)
    return lambda x, y: mp.exp(-_distance2(x, y, scales) / 2)


def matern(lengthscale, nu) -> Kernel:
    scales = exact(lengthscale)

    def k(x, y):
        r = mp.sqrt(mp.mpf(2 * nu) * _distance2(x, y, scales))
        polynomial = {0.5: 1, 1.5: 1 + r, 2.5: 1 + r + r * r / 3}[nu]
        return polynomial * mp.exp(-r)

    return k


def polynomial(degree, bias) -> Kernel:
    return lambda x, y: (sum(a * b for a, b in zip(x, y, strict=True)) + mp.mpf(bias)) ** degree


def scaled(kernel: Kernel, constant) -> Kernel:
    return lambda x, y: mp.mpf(constant) * kernel(x, y)


def gram(kernel: Kernel, X, Y) -> mp.matrix:
    return mp.matrix([[kernel(x, y) for y in rows(Y)] for x in rows(X)])


@dataclass
class Grams:
    """All the kernel values the posterior needs: dictionary, pulled × dictionary, tested × dictionary, k(x, x)."""

    SS: mp.matrix
    US: mp.matrix
    XS: mp.matrix
    diag: list

    @classmethod
    def of(cls, kernel: Kernel, S, U, X) -> "Grams":
        return cls(
            gram(kernel, S, S),
            gram(kernel, U, S),
            gram(kernel, X, S),
            [kernel(x, x) for x in rows(X)],
        )

    def rounded(self, rng) -> "Grams":
        """Every kernel value off by up to ε: what a double precision algorithm has to start from."""

        def off(M, symmetric=False):
            noise = np.finfo(float).eps * rng.uniform(-1, 1, (M.rows, M.cols))
            noise = np.tril(noise) + np.tril(noise, -1).T if symmetric else noise
            return mp.matrix(
                [
                    [M[i, j] * (1 + mp.mpf(noise[i, j])) for j in range(M.cols)]
                    for i in range(M.rows)
                ]
            )

        return Grams(off(self.SS, symmetric=True), off(self.US), off(self.XS), self.diag)


def sketched_moments(grams: Grams, counts, sums, regularization):
    """μ̃ = k_Sᵀ(K_SU N K_US + λK_SS)⁻¹K_SU s and σ̃² = (k − k_SᵀK_SS⁻¹k_S)/λ + k_Sᵀ(K_SU N K_US + λK_SS)⁻¹k_S."""
    lam = mp.mpf(float(regularization))
    M = (grams.US.T * mp.diag(exact(counts)) * grams.US + lam * grams.SS) ** -1
    mean = grams.XS * (M * (grams.US.T * mp.matrix(exact(sums))))
    explained, uncertain = grams.XS * grams.SS**-1, grams.XS * M
    variance = []
    for i in range(grams.XS.rows):
        dot = [
            sum(T[i, j] * grams.XS[i, j] for j in range(grams.XS.cols))
            for T in (explained, uncertain)
        ]
        variance.append((grams.diag[i] - dot[0]) / lam + dot[1])
    return _floats(mean), _floats(variance)


def exact_moments(kernel: Kernel, U, counts, sums, regularization, X):
    """μ = k_Uᵀ(K_UU + λN⁻¹)⁻¹(s/n) and σ² = (k − k_Uᵀ(K_UU + λN⁻¹)⁻¹k_U)/λ."""
    lam = mp.mpf(float(regularization))
    n, s = exact(counts), exact(sums)
    T = (gram(kernel, U, U) + mp.diag([lam / count for count in n])) ** -1
    K = gram(kernel, X, U)
    mean = K * (T * mp.matrix([a / b for a, b in zip(s, n, strict=True)]))
    B = K * T
    diag = [kernel(x, x) for x in rows(X)]
    variance = [
        (diag[i] - sum(B[i, j] * K[i, j] for j in range(K.cols))) / lam for i in range(K.rows)
    ]
    return _floats(mean), _floats(variance)


def _floats(values):
    return np.array([float(v) for v in values])


def frozen_moments(kernel: Kernel, W, rows_seen, sizes, weights, rewards, regularization, X):
    """μ̃ and σ̃² of features that were frozen: the s-th row is projected on the first |W_s| rows of W, and stays so.

    In the coordinates c of Σ c_j φ(w_j): Ã = λI + Σ ω ψψᵀ with ψ_s = Σ_j a_sj φ(w_j), a_s = K_ss⁻¹k_s padded with zeros.
    """
    lam = mp.mpf(float(regularization))
    K = gram(kernel, W, W)
    m = K.rows
    seen = gram(kernel, rows_seen, W)
    omega = exact(weights)
    A = mp.matrix(len(sizes), m)
    for s, size in enumerate(sizes):
        part = mp.matrix([[K[i, j] for j in range(size)] for i in range(size)])
        a = mp.lu_solve(part, mp.matrix([seen[s, j] for j in range(size)]))
        for j in range(size):
            A[s, j] = a[j]
    # ⟨φ(x), Ã⁻¹φ(y)⟩ = (k(x, y) − gᵀ(λI + K^½SK^½)⁻¹… )/λ: with S = AᵀΩA, Ã⁻¹ = (I − ΦᵀS(λI + KS)⁻¹Φ)/λ.
    S = A.T * mp.diag(omega) * A
    T = S * (lam * mp.eye(m) + K * S) ** -1
    b = A.T * mp.matrix([o * y for o, y in zip(omega, exact(rewards), strict=True)])
    k = gram(kernel, X, W)
    weighted = (b - T * (K * b)) / lam
    mean = k * weighted
    kT = k * T
    diag = [kernel(x, x) for x in rows(X)]
    variance = [(diag[i] - sum(kT[i, j] * k[i, j] for j in range(m))) / lam for i in range(k.rows)]
    return _floats(mean), _floats(variance)
