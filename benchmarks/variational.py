"""A variational posterior of fixed size: inducing inputs that maximise Titsias' collapsed bound (AISTATS 2009).

    F(S) = log N(y | 0, Q + λI) − Tr(K − Q)/2λ,   Q = ZZᵀ,

grown one observed input at a time, each time by the one that raises F most. Given S the optimal posterior has the mean and the
variance of DTC, as BKB has (`Drawn.moments`): what differs is only how S is found. Nothing is promised about it.
"""

import numpy as np

from manyarms.kernels import Kernel


def inducing_inputs(
    kernel: Kernel, X: np.ndarray, y: np.ndarray, regularization: float, m: int
) -> np.ndarray:
    """Rows of X (n, d) that make S, greedily, (m,) or fewer; y (n,) are the observations."""
    K, n = kernel(X, X), len(X)
    Z, r = np.zeros((n, 0)), np.diag(K).copy()
    chosen: list[int] = []
    while len(chosen) < min(m, n) and r.max() > 1e-10 * K.max():
        new = np.flatnonzero(r > 1e-10 * K.max())
        E = (K[:, new] - Z @ Z[new].T) / np.sqrt(
            r[new]
        )  # the coordinate each of them would add, (n, ·)
        gain = gains(Z, E, y, regularization)
        best = int(gain.argmax())
        if gain[best] <= 0:
            break
        chosen.append(int(new[best]))
        Z, r = np.column_stack([Z, E[:, best]]), r - np.square(E[:, best])
    return np.array(chosen, dtype=np.intp)


def gains(Z: np.ndarray, E: np.ndarray, y: np.ndarray, regularization: float) -> np.ndarray:
    """How much F rises with each column of E (n, ·) as one more column of Z (n, m).

    V = ZᵀZ + λI gains a row: its determinant is multiplied by δ = λ + ‖e‖² − vᵀV⁻¹v, v = Zᵀe, and yᵀ(Q + λI)⁻¹y falls by
    (eᵀy − vᵀV⁻¹Zᵀy)²/δλ.
    """
    V = Z.T @ Z + regularization * np.eye(Z.shape[1])
    G = np.linalg.solve(V, Z.T @ E)
    squares = np.square(E).sum(axis=0)
    delta = regularization + squares - np.einsum("ij,ij->j", Z.T @ E, G)
    fit = np.square(E.T @ y - G.T @ (Z.T @ y)) / (delta * regularization)
    return 0.5 * (fit - np.log(delta / regularization) + squares / regularization)
