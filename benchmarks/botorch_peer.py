"""BoTorch over a table: an exact Gaussian process, and log expected improvement of every candidate."""

import numpy as np
import torch
from botorch.acquisition.analytic import _log_ei_helper
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from gpytorch.kernels import Kernel, ScaleKernel
from gpytorch.mlls import ExactMarginalLogLikelihood
from spaces import encode
from tables import Table

STARTS = 10
"""Random evaluations before the first model, as many as TPE has by default."""
CHUNK = 2048
"""Candidates scored at once."""


class BoTorch:
    """`SingleTaskGP` with its default priors and `LogExpectedImprovement` over the whole table.

    A fit begins at the hyperparameters of the one before. The improvement is over the largest posterior mean of an evaluated
    candidate, which is recommended too. Molecules have a Tanimoto kernel with a learned scale. A failure is told as the worst
    value so far. Candidates are scored in blocks: BoTorch's own batches of one candidate each give the same values and take
    longer. One thread: while other jobs held both cores, two were many times slower.
    """

    def __init__(self, table: Table, budget: int, seed: int) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(seed)  # a fit that fails is tried again from random values
        self._X = torch.from_numpy(encode(table))
        self._is_molecules = bool(table.columns)
        self._starts = np.random.default_rng([seed, 1]).integers(len(table), size=STARTS).tolist()
        self._rows: list[int] = []
        self._values: list[float | None] = []
        self._model: SingleTaskGP | None = None

    def ask(self) -> int:
        if len(self._rows) < STARTS:
            return self._starts[len(self._rows)]
        self._model = self._fitted()
        with torch.no_grad():
            best = self._model.posterior(self._X[self._rows]).mean.max()
            scores = [self._log_ei(block, best) for block in self._X.split(CHUNK)]
            return int(torch.cat(scores).argmax())

    def tell(self, row: int, value: float | None) -> None:
        self._rows.append(row)
        self._values.append(value)

    def recommend(self) -> int:
        if self._model is None:
            return self._rows[int(np.argmax(self._told()))]
        with torch.no_grad():
            return self._rows[int(self._model.posterior(self._X[self._rows]).mean.argmax())]

    def _told(self) -> list[float]:
        """What the model learns from: a failure is as bad as the worst value."""
        worst = min((value for value in self._values if value is not None), default=0.0)
        return [worst if value is None else value for value in self._values]

    def _fitted(self) -> SingleTaskGP:
        kernel = ScaleKernel(Tanimoto()) if self._is_molecules else None
        y = torch.tensor(self._told(), dtype=self._X.dtype)[:, None]
        model = SingleTaskGP(self._X[self._rows], y, covar_module=kernel)
        if self._model is not None:
            before = self._model.state_dict().items()
            known = {key: value for key, value in before if not key.startswith("outcome_")}
            model.load_state_dict(known, strict=False)
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        return model

    def _log_ei(self, block: torch.Tensor, best: torch.Tensor) -> torch.Tensor:
        posterior = self._model.posterior(block)
        deviation = posterior.variance.clamp_min(1e-12).sqrt()  # as LogExpectedImprovement does
        return (_log_ei_helper((posterior.mean - best) / deviation) + deviation.log())[:, 0]


class Tanimoto(Kernel):
    """|x ∧ y|/|x ∨ y|; 1 of a fingerprint and itself, even one without bits."""

    def forward(self, x, y, diag=False, **_):
        common = (x * y).sum(-1) if diag else x @ y.transpose(-1, -2)
        x, y = x.sum(-1), y.sum(-1)
        either = (x + y if diag else x[..., :, None] + y[..., None, :]) - common
        return torch.where(either > 0, common / either.clamp(min=1), 1.0)
