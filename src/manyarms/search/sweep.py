import numpy as np
class Columns:
    def __init__(self, kernel): self.kernel=kernel; self.compiled=False
    def into(self, out, X, W): out[:] = self.kernel(np.asarray(X, dtype=float), W).T
def step(Z, p, m, ahead, corner, G, surprise, mean, variance):
    for i in range(p, m):
        Z[i] -= ahead[i-p] @ Z[:p]
        Z[i] -= corner[i-p, :i-p] @ Z[p:i]
        Z[i] /= corner[i-p, i-p]
    if len(G):
        H = G @ Z[:m]
        mean += surprise @ H
        variance -= np.square(H).sum(axis=0)
        np.maximum(variance, 0, out=variance)
def peak(mean, variance, shut, beta, offset):
    v = mean + beta*np.sqrt(np.maximum(variance+offset, 0))
    if shut is not None: v[shut] = -np.inf
    i = int(v.argmax())
    return (i, float(v[i])) if v[i] > -np.inf else (-1, -np.inf)
def reach(mean, variance, shut, need, scale):
    at = np.minimum((variance*scale).astype(np.intp), len(need)-1)
    ok = mean >= need[at]
    if shut is not None: ok &= ~shut
    return np.flatnonzero(ok)
