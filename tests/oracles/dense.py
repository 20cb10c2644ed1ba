"""Dense float64 formulas on the full list of pulls, one row a pull, written apart from the engine."""

import numpy as np


def exact(kernel, arms, pulls, rewards, regularization, X):
    """Eqs. (1) and (2), the variance divided by λ."""
    if len(pulls) == 0:
        return np.zeros(len(X)), kernel.diag(X) / regularization
    rows = arms[pulls]
    T = np.linalg.inv(kernel(rows, rows) + regularization * np.eye(len(rows)))
    K = kernel(X, rows)
    return K @ T @ rewards, (kernel.diag(X) - np.einsum("ij,jk,ik->i", K, T, K)) / regularization


def sketched(kernel, arms, dictionary, pulls, rewards, regularization, X):
    """The paper's Eq. (4) as printed but for Z(X_t)ᵀy: z = (K_S^{1/2})⁺k_S and σ̃² = (k − zᵀZᵀZV⁻¹z)/λ."""
    S = arms[dictionary]
    e, Q = np.linalg.eigh(kernel(S, S))
    root = np.where(e > 1e-12 * e.max(), 1 / np.sqrt(np.maximum(e, 1e-300)), 0.0)
    embed = (Q * root) @ Q.T
    Z, z = kernel(arms[pulls], S) @ embed, kernel(X, S) @ embed
    V = Z.T @ Z + regularization * np.eye(len(S))
    mean = z @ np.linalg.solve(V, Z.T @ rewards)
    variance = (
        kernel.diag(X) - np.einsum("ij,ij->i", z @ (Z.T @ Z), np.linalg.solve(V, z.T).T)
    ) / regularization
    return mean, variance


def leverage_scores(K, regularization):
    """diag K(K + λI)⁻¹."""
    return np.diag(np.linalg.solve(K + regularization * np.eye(len(K)), K))
