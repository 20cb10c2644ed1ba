"""BoTorch over a table: an exact Gaussian process, and log expected improvement of every candidate."""

from collections.abc import Callable

import numpy as np
import torch
from botorch.acquisition.analytic import LogExpectedImprovement, _log_ei_helper
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

    A fit begins at the hyperparameters of the one before, with anew=True at those of the priors. The improvement is over the largest posterior mean of an evaluated
    candidate, which is recommended too. Molecules have a Tanimoto kernel with a learned scale. A failure is told as the worst
    value so far. One thread: while other jobs held both cores, two were many times slower.

    With own=True the acquisition function scores the candidates as a user would write it. Otherwise the same formula on
    the same model does: the choices are the same up to rounding, in a fraction of the time.
    """

    def __init__(
        self, table: Table, budget: int, seed: int, own: bool = False, anew: bool = False
    ) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(seed)  # a fit that fails is tried again from random values
        self._X = torch.from_numpy(encode(table))
        self._is_molecules = bool(table.columns)
        self._starts = np.random.default_rng([seed, 1]).integers(len(table), size=STARTS).tolist()
        self._rows: list[int] = []
        self._values: list[float | None] = []
        self._model: SingleTaskGP | None = None
        self._own, self._anew = own, anew

    def ask(self) -> int:
        if len(self._rows) < STARTS:
            return self._starts[len(self._rows)]
        self._model = self._fitted()
        with torch.no_grad():
            predict = predictor(self._model)
            best = predict(self._X[self._rows])[0].max()
            if self._own:
                scores = self._own_scores(best)
            else:
                scores = [log_ei(*predict(block), best) for block in self._X.split(CHUNK)]
            return int(torch.cat(scores).argmax())

    def tell(self, row: int, value: float | None) -> None:
        self._rows.append(row)
        self._values.append(value)

    def recommend(self) -> int:
        if self._model is None:
            return self._rows[int(np.argmax(self._told()))]
        with torch.no_grad():
            mean, _ = predictor(self._model)(self._X[self._rows])
            return self._rows[int(mean.argmax())]

    def _own_scores(self, best: torch.Tensor) -> list[torch.Tensor]:
        """By the acquisition function itself, of batches of one candidate each."""
        unstandardised, _ = self._model.outcome_transform.untransform(best[None, None])
        score = LogExpectedImprovement(self._model, best_f=unstandardised[0, 0])
        return [score(block[:, None, :]) for block in self._X.split(CHUNK)]

    def _told(self) -> list[float]:
        """What the model learns from: a failure is as bad as the worst value."""
        worst = min((value for value in self._values if value is not None), default=0.0)
        return [worst if value is None else value for value in self._values]

    def _fitted(self) -> SingleTaskGP:
        kernel = ScaleKernel(Tanimoto()) if self._is_molecules else None
        y = torch.tensor(self._told(), dtype=self._X.dtype)[:, None]
        model = SingleTaskGP(self._X[self._rows], y, covar_module=kernel)
        if self._model is not None and not self._anew:
            before = self._model.state_dict().items()
            known = {key: value for key, value in before if not key.startswith("outcome_")}
            model.load_state_dict(known, strict=False)
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        return model


def predictor(model: SingleTaskGP) -> Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]:
    """A function of candidates: posterior means and deviations, in units of the standardised values.

    They are those of `model.posterior`, which would also make the covariances between all candidates of a block.
    """
    model.eval()
    X, y = model.train_inputs[0], model.train_targets
    kernel, mean = model.covar_module, model.mean_module
    noise = model.likelihood.noise * torch.eye(len(X), dtype=X.dtype)
    factor = torch.linalg.cholesky(kernel(X).to_dense() + noise)
    weights = torch.cholesky_solve((y - mean(X))[:, None], factor)[:, 0]

    def predict(block: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        cross = kernel(X, block).to_dense()
        known = torch.linalg.solve_triangular(factor, cross, upper=False).square().sum(dim=0)
        variance = kernel(block, diag=True) - known
        # The floor is that of LogExpectedImprovement.
        return mean(block) + weights @ cross, variance.clamp_min(1e-12).sqrt()

    return predict


def log_ei(mean: torch.Tensor, deviation: torch.Tensor, best: torch.Tensor) -> torch.Tensor:
    """The formula of `LogExpectedImprovement`."""
    return _log_ei_helper((mean - best) / deviation) + deviation.log()


class Tanimoto(Kernel):
    """|x ∧ y|/|x ∨ y|; 1 of a fingerprint and itself, even one without bits."""

    def forward(self, x, y, diag=False, **_):
        common = (x * y).sum(-1) if diag else x @ y.transpose(-1, -2)
        x, y = x.sum(-1), y.sum(-1)
        either = (x + y if diag else x[..., :, None] + y[..., None, :]) - common
        return torch.where(either > 0, common / either.clamp(min=1), 1.0)
