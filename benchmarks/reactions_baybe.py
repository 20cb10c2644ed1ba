"""BayBE on one reaction table: started by reactions.py with a Python that has BayBE installed.

    python reactions_baybe.py TABLE.csv SEED BATCH BUDGET

The table has the columns of the recipe and the column "yield", a number a row. Text is one-hot encoded, a number is a number, all
else is BayBE's default: one farthest-point or random batch, then batches by its surrogate. Prints the rows chosen, in order, as JSON.
"""

import json
import sys
import time
import warnings

import pandas as pd
import torch
from baybe import Campaign, __version__
from baybe.parameters import CategoricalParameter, NumericalDiscreteParameter
from baybe.searchspace import SearchSpace
from baybe.settings import Settings
from baybe.targets import NumericalTarget


def main(path, seed, batch, budget):
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    table = pd.read_csv(path, keep_default_na=False)
    recipes = table.drop(columns="yield")
    keys = {tuple(row): i for i, row in enumerate(recipes.itertuples(index=False))}
    parameters = [
        NumericalDiscreteParameter(name, sorted(set(column)))
        if pd.api.types.is_numeric_dtype(column)
        else CategoricalParameter(name, sorted(set(column)), encoding="OHE")
        for name, column in recipes.items()
    ]
    with Settings(random_seed=seed):
        campaign = Campaign(
            SearchSpace.from_dataframe(recipes, parameters),
            NumericalTarget("yield").to_objective(),
        )
        chosen = []
        start = time.process_time()
        while len(chosen) < min(budget, len(table)):
            asked = campaign.recommend(min(batch, len(table) - len(chosen)))
            rows = [keys[tuple(row)] for row in asked.itertuples(index=False)]
            asked["yield"] = table["yield"].iloc[rows].to_numpy()
            campaign.add_measurements(asked)
            chosen += rows
    seconds = time.process_time() - start
    print(json.dumps({"chosen": chosen, "seconds": seconds, "version": __version__}))


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
