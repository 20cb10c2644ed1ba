"""SMAC3 over a table: its facade for hyperparameters, a random forest with log expected improvement."""

import logging
import os
import tempfile
from collections import defaultdict
from pathlib import Path

import numpy as np
from ConfigSpace import (
    CategoricalHyperparameter,
    Configuration,
    ConfigurationSpace,
    UniformFloatHyperparameter,
    UniformIntegerHyperparameter,
)
from smac import HyperparameterOptimizationFacade, Scenario
from smac.runhistory import StatusType, TrialInfo, TrialValue
from spaces import Parameter, Space, parameters
from tables import Table


class Smac:
    """The incumbent is recommended.

    SMAC minimises costs and takes their logarithm, so they must be positive. The cost of a value y is exp(−(y − m)/u) for the
    table's median m and unit u = best − m: its logarithm is the value itself, in the units of regret. No user knows these two
    numbers; without them SMAC could only do worse. The usual cost of a crash is infinite, of which a forest cannot learn: it
    costs as much as the worst value so far.
    """

    def __init__(self, table: Table, budget: int, seed: int) -> None:
        self._centre = float(np.median(table.means))
        self._unit = table.unit
        self._space = Space(parameters(table))
        space = ConfigurationSpace(seed=seed)
        space.add([hyperparameter(p) for p in self._space.parameters])
        # SMAC writes its settings somewhere; the next run of this process overwrites them.
        folder = Path(tempfile.gettempdir()) / f"manyarms-smac-{os.getpid()}"
        scenario = Scenario(space, n_trials=budget, seed=seed, output_directory=folder)
        self._smac = HyperparameterOptimizationFacade(
            scenario, _never_called, logging_level=logging.ERROR, overwrite=True
        )
        self._pending: dict[int, list[TrialInfo]] = defaultdict(list)
        self._worst = 1.0

    def ask(self) -> int:
        info = self._smac.ask()
        row = self._row(info.config)
        self._pending[row].append(info)
        return row

    def tell(self, row: int, value: float | None) -> None:
        info = self._pending[row].pop(0)
        if value is None:
            told = TrialValue(cost=self._worst, status=StatusType.CRASHED)
        else:
            cost = float(np.exp(-(value - self._centre) / self._unit))
            self._worst = max(self._worst, cost)
            told = TrialValue(cost=cost)
        self._smac.tell(info, told, save=False)

    def recommend(self) -> int:
        incumbent = self._smac.intensifier.get_incumbent()
        if incumbent is None:
            raise RuntimeError("SMAC has no incumbent yet")
        return self._row(incumbent)

    def _row(self, configuration: Configuration) -> int:
        return self._space.row(dict(configuration))


def hyperparameter(parameter: Parameter):
    """A category or level by its number, a share of a range."""
    if parameter.kind == "category":
        return CategoricalHyperparameter(parameter.name, range(parameter.n))
    if parameter.kind == "levels":
        return UniformIntegerHyperparameter(parameter.name, 0, parameter.n - 1)
    return UniformFloatHyperparameter(parameter.name, 0.0, 1.0)


def _never_called(config: Configuration, seed: int) -> float:
    """SMAC wants a function even where it is only asked and told."""
    raise NotImplementedError
