"""Optuna over a table: `TPESampler` and `GPSampler` at their defaults."""

from collections import defaultdict

import optuna
from spaces import Parameter, Space, parameters
from tables import Table

optuna.logging.set_verbosity(optuna.logging.WARNING)


class Optuna:
    """A study; the best trial is recommended, and a failure is a trial that failed."""

    def __init__(self, table: Table, sampler: optuna.samplers.BaseSampler) -> None:
        self._space = Space(parameters(table))
        self._study = optuna.create_study(direction="maximize", sampler=sampler)
        self._pending: dict[int, list[optuna.Trial]] = defaultdict(list)
        self._rows: dict[int, int] = {}  # by the number of the trial

    def ask(self) -> int:
        trial = self._study.ask()
        row = self._space.row({p.name: suggested(trial, p) for p in self._space.parameters})
        self._pending[row].append(trial)
        self._rows[trial.number] = row
        return row

    def tell(self, row: int, value: float | None) -> None:
        trial = self._pending[row].pop(0)
        if value is None:
            self._study.tell(trial, state=optuna.trial.TrialState.FAIL)
        else:
            self._study.tell(trial, value)

    def lose(self, row: int) -> None:
        self.tell(row, None)

    def recommend(self) -> int:
        return self._rows[self._study.best_trial.number]


def suggested(trial: optuna.Trial, parameter: Parameter) -> float:
    """A category or level by its number, a share of a range."""
    if parameter.kind == "category":
        return trial.suggest_categorical(parameter.name, range(parameter.n))
    if parameter.kind == "levels":
        return trial.suggest_int(parameter.name, 0, parameter.n - 1)
    return trial.suggest_float(parameter.name, 0.0, 1.0)


def tpe(table: Table, budget: int, seed: int) -> Optuna:
    """As it comes: multivariate since Optuna 5."""
    return Optuna(table, optuna.samplers.TPESampler(seed=seed))


def univariate(table: Table, budget: int, seed: int) -> Optuna:
    """The default before Optuna 5."""
    return Optuna(table, optuna.samplers.TPESampler(seed=seed, multivariate=False))


def gp(table: Table, budget: int, seed: int) -> Optuna:
    """A Gaussian process with log expected improvement."""
    return Optuna(table, optuna.samplers.GPSampler(seed=seed))
