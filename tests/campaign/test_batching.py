"""Rules of a batch, and the reasons that stand beside suggestions: both are checked against the plain computation."""

import itertools

import numpy as np
import polars as pl
import pytest
from command_line import manyarms

import manyarms as ma
from manyarms.campaign import reasons
from manyarms.campaign.proposing import sum_of_bounds
from manyarms.errors import ArmsError, ParameterError, StateError

LIGANDS = {"A": 0.0, "B": 3.0, "C": 9.0, "D": 20.0, "E": 5.0}
ROWS = [
    {"name": f"{solvent}-{t}-{ligand}", "solvent": solvent, "temperature": t, "ligand": ligand}
    for solvent, t, ligand in itertools.product(("water", "DMF", "THF"), (60, 80, 100), LIGANDS)
]
POOL = ma.Pool.from_dicts(ROWS, id="name")


def value(id, step=0):
    solvent, t, ligand = id.split("-")
    noise = np.random.default_rng([step, *id.encode()]).normal()
    return (
        {"water": 0, "DMF": 20, "THF": 10}[solvent] - abs(int(t) - 80) / 2 + LIGANDS[ligand] + noise
    )


def column(ids, name):
    return [row[name] for row in POOL.rows(ids)]


@pytest.fixture
def known():
    """An optimizer with twelve results and one candidate pending."""
    optimizer = ma.Optimizer(POOL, seed=3)
    for step in range(3):
        ids = optimizer.ask(4)
        optimizer.tell(ids, [value(id, step) for id in ids])
    optimizer.ask()
    return optimizer


@pytest.mark.parametrize("n_before", [0, 12])
def test_a_batch_keeps_to_its_rules(n_before):
    optimizer = ma.Optimizer(POOL)
    for step in range(n_before // 4):
        ids = optimizer.ask(4)
        optimizer.tell(ids, [value(id, step) for id in ids])
    at_80 = optimizer.ask(5, where="temperature == 80")
    assert set(column(at_80, "temperature")) == {80}
    mask = np.array([row["solvent"] == "THF" for row in ROWS])
    assert set(column(optimizer.ask(5, where=mask), "solvent")) == {"THF"}
    together = optimizer.ask(5, same="temperature")
    assert len(set(column(together, "temperature"))) == 1
    assert len(set(together)) == 5
    both = optimizer.ask(3, same=["temperature", "solvent"], where="ligand != 'D'")
    assert len({(row["temperature"], row["solvent"]) for row in POOL.rows(both)}) == 1
    assert "D" not in column(both, "ligand")
    few = optimizer.ask(7, max_new={"ligand": 2, "solvent": 1})
    assert len(set(column(few, "ligand"))) <= 2
    assert len(set(column(few, "solvent"))) == 1


def test_a_condition_leaves_fewer_or_none():
    optimizer = ma.Optimizer(POOL, repeats="never")
    assert len(optimizer.ask(9, where="temperature == 80 and solvent == 'THF'")) == 5
    with pytest.raises(StateError, match="5 of 45 candidates meet the condition"):
        optimizer.ask(1, where="temperature == 80 and solvent == 'THF'")
    with pytest.raises(StateError, match="no candidate meets"):
        optimizer.ask(1, where="temperature > 500")
    assert len(optimizer.ask(99)) == 40


@pytest.mark.parametrize(
    ("error", "rules"),
    [
        (ArmsError, {"where": "colour == 1"}),
        (ArmsError, {"where": "temperature ="}),
        (ParameterError, {"where": [True, False]}),
        (ParameterError, {"where": np.ones(45)}),
        (ParameterError, {"same": "colour"}),
        (ParameterError, {"max_new": 3}),
        (ParameterError, {"max_new": {"colour": 3}}),
        (ParameterError, {"max_new": {"ligand": 0}}),
        (ParameterError, {"max_new": {"ligand": "two"}}),
    ],
)
def test_rules_that_cannot_be_are_refused(known, error, rules):
    pending = known.pending
    with pytest.raises(error):
        known.ask(2, **rules)
    assert known.pending == pending


def test_one_candidate_may_be_limited_within_a_batch():
    optimizer = ma.Optimizer(ma.Pool.from_array(np.eye(2)))
    optimizer.tell([0, 1], [1.0, 2.0])
    assert sorted(optimizer.ask(9, most_each=2)) == [0, 0, 1, 1]


def test_a_box_has_no_rows_to_choose_among():
    optimizer = ma.Optimizer(ma.Box(x=(0.0, 1.0)))
    with pytest.raises(ParameterError, match="a box has none"):
        optimizer.ask(1, where="x > 0.5")
    assert len(optimizer.ask(2, most_each=2)) == 2


def test_the_same_level_is_the_one_of_largest_sum_of_bounds(known):
    """Against every level by itself, and bounds that the exact posterior gives."""
    state = known._state
    arm_of = POOL.arm_of
    waiting = arm_of[state.ledger.waiting]
    sums = {}
    for t in (60, 80, 100):
        another = ma.Optimizer(POOL, seed=3)
        another._state = state
        ids = another.ask(4, where=f"temperature == {t}")
        arms = arm_of[POOL.positions(ids)]
        sums[t] = sum_of_bounds(state.model, waiting, arms)
        assert sums[t] == pytest.approx(dense_sum(state.model, waiting, arms), rel=1e-3)
    ids = known.ask(4, same="temperature")
    assert column(ids, "temperature") == [max(sums, key=sums.get)] * 4


def dense_sum(model, waiting, arms):
    """Σ μ + β·sd, each sd by Gaussian elimination of what comes before it in the joint posterior."""
    policy = model.policy
    lam = policy.regularization
    rows = model.arms[np.concatenate([waiting, arms])]
    told, _, _ = model_results(model)
    K = policy.kernel(told, told) + lam * np.eye(len(told))
    cross = policy.kernel(rows, told)
    joint = policy.kernel(rows, rows) - cross @ np.linalg.solve(K, cross.T)
    mean = policy.predict(rows).mean
    total = 0.0
    for i in range(len(rows)):
        if i >= len(waiting):
            total += mean[i] + model.radius * np.sqrt(joint[i, i])
        joint = joint - np.outer(joint[:, i], joint[i]) / (joint[i, i] + lam)
    return total


def model_results(model):
    log = model.policy.log
    counts = np.rint(log.weights).astype(int)
    return np.repeat(model.arms[log.arms], counts, axis=0), log.rewards, log.weights


def test_asking_by_rules_replays(path):
    study = ma.Study.create(path, POOL)
    ids = study.ask(8)
    study.tell(ids, [value(id) for id in ids])
    other = ma.Study.open(path)
    study.ask(3, where="temperature == 80", same="solvent")
    study.ask(3, max_new={"ligand": 1})
    for each in (other, ma.Study.open(path)):
        assert each.leases == study.leases
    assert all(lease.reason and lease.forecast for lease in study.leases)


# Reasons


def test_each_reason_is_true(path):
    """What is said of a suggestion holds of the predictions at that time."""
    study = ma.Study.create(path, POOL, worker="ada")
    said = set()
    for step in range(7):
        tried = {trial.id for trial in study.history}
        levels = {row["ligand"] for row in POOL.rows(sorted(tried))}
        surprising = {
            trial.id
            for trial in study.history
            if trial.forecast and not trial.forecast.low <= trial.value <= trial.forecast.high
        }
        ids = study.ask(4)
        if tried:
            mean, std = (
                dict(zip(POOL.ids.tolist(), numbers, strict=True))
                for numbers in study._replica._model.predict(np.arange(45))
            )
        for i, lease in enumerate(study.leases):
            assert lease.id == ids[i]
            said.add(lease.reason.split(":")[0])
            left = [id for id in POOL.ids.tolist() if id not in ids[:i]]
            if lease.reason == reasons.RANDOM:
                assert len(study.history) < 8
                assert lease.forecast is None
                continue
            assert (lease.id in tried) == (lease.reason in (reasons.CHECK, reasons.REPEAT))
            assert (lease.reason == reasons.CHECK) == (lease.id in surprising)
            if lease.reason in (reasons.EXPECTED_BEST, reasons.EXPECTED_NEXT):
                assert mean[lease.id] == pytest.approx(max(mean[id] for id in left))
            if lease.reason.startswith(reasons.NEVER):
                (ligand,) = column([lease.id], "ligand")
                assert lease.reason == f"never tried: ligand {ligand}"
                assert ligand not in levels
            if lease.reason == reasons.UNCERTAIN:
                better = [id for id in left if mean[id] >= mean[lease.id]]
                assert std[lease.id] == pytest.approx(max(std[id] for id in better))
        study.tell(ids, [value(id, step) + (25 if step == 3 and id == ids[0] else 0) for id in ids])
    assert len(said) >= 4, said


def test_a_surprising_result_is_checked(path):
    study = ma.Study.create(path, POOL)
    for step in range(3):
        ids = study.ask(4)
        study.tell(ids, [value(id, step) for id in ids])
    (id,) = study.ask()
    study.tell(id, value(id) + 200.0)
    asked = {}
    for step in range(6):
        (again,) = study.ask()
        asked[again] = study.leases[0].reason
        study.tell(again, value(again, step))
    assert asked[id] == "check of a surprising result"


# On the command line


@pytest.fixture
def lab(folder, monkeypatch):
    monkeypatch.chdir(folder)
    pl.DataFrame(ROWS).write_csv("recipes.csv")
    manyarms(
        "init", "lab.db", "--pool", "recipes.csv", "--id", "name", "--maximize", "--bounds", 0, 45
    )
    for step in range(2):
        manyarms("suggest", "lab.db", "-n", 5, "-o", "next.csv", "--force")
        rows = pl.read_csv("next.csv", infer_schema=False)
        told = [str(value(id, step)) for id in rows["name"]]
        rows.with_columns(value=pl.Series(told)).write_csv("next.csv")
        manyarms("tell", "lab.db", "next.csv")
    return folder / "lab.db"


def test_suggestions_say_what_is_expected_and_why(lab):
    shown = manyarms("suggest", lab, "-n", 3)
    assert shown.out.splitlines()[0].split() == [
        *("id", "solvent", "temperature", "ligand", "predicted", "low", "high", "why")
    ]
    listed = manyarms("suggest", lab, "--pending", "--json").data["candidates"]
    for each in listed:
        assert 0 <= each["low"] <= each["predicted"] <= each["high"] <= 45
        assert each["why"] in shown.out
    manyarms("suggest", lab, "--pending", "-o", "again.csv")
    written = pl.read_csv("again.csv")
    assert written["why"].to_list() == [each["why"] for each in listed]
    assert written["predicted"].to_list() == [each["predicted"] for each in listed]


@pytest.mark.parametrize(
    "rules",
    [
        ["--where", "temperature == 80"],
        ["--fix", "temperature=80"],
        ["--fix", "temperature=80,0", "--decimal", ","],
        ["--where", "temperature > 60", "--where", "temperature < 100"],
    ],
)
def test_conditions_on_the_command_line(lab, rules):
    found = manyarms("suggest", lab, "-n", 4, "--json", *rules).data["candidates"]
    assert {each["columns"]["temperature"] for each in found} == {80}


def test_rules_on_the_command_line(lab):
    line = ["--fix", "solvent=THF", "--same", "temperature", "--max-new", "ligand=2"]
    answer = manyarms("suggest", lab, "-n", 4, "--json", *line)
    rows = [each["columns"] for each in answer.data["candidates"]]
    assert {row["solvent"] for row in rows} == {"THF"}
    assert len({row["temperature"] for row in rows}) == 1
    assert len({row["ligand"] for row in rows}) <= 2


def test_fewer_than_asked_for_is_said(folder, monkeypatch):
    monkeypatch.chdir(folder)
    (folder / "two.csv").write_text("name,x\na,1\nb,2\n")
    manyarms("init", "two.db", "--pool", "two.csv", "--id", "name", "--maximize")
    answer = manyarms("suggest", "two.db", "-n", 9)
    assert "only 4 candidates may be suggested now, not 9" in answer.err


def test_all_columns_are_shown(folder, monkeypatch):
    monkeypatch.chdir(folder)
    names = [f"c{i}" for i in range(30)]
    rows = "\n".join(",".join(str((i * j) % 7) for j in range(31)) for i in range(1, 9))
    (folder / "wide.csv").write_text(f"name,{','.join(names)}\n{rows}\n".replace("name", "id", 1))
    pl.read_csv("wide.csv").with_columns(id=pl.Series(range(8))).write_csv("wide.csv")
    manyarms("init", "wide.db", "--pool", "wide.csv", "--id", "id", "--maximize")
    assert set(names) <= set(manyarms("suggest", "wide.db").out.split())
