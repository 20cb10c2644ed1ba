"""The problems, the runner and the experiments of benchmarks/, at tiny sizes."""

import json
import re

import bandits
import floors
import numpy as np
import owned
import profiling
import pytest
import reactions
import runner
import streams
import summary
import tables
import variational
from bandits import problem
from extras import needs
from runner import Run
from scipy.stats import multivariate_normal
from systems import SYSTEMS, MissingSystemError, System

import manyarms as ma
from manyarms.errors import KernelError

experiments = needs("bench", "experiments")

pytestmark = pytest.mark.slow

TINY = "rkhs:n_arms=60,d=1"


class TestProblems:
    def test_an_rkhs_draw_has_the_norm_it_says(self):
        p = problem("rkhs:n_arms=400,d=1,norm=3.0,lengthscale=0.1", 0)
        K = p.kernel(p.arms, p.arms)
        # On a dense grid of arms the smallest norm that fits f at them is that of f, from below.
        assert p.means @ np.linalg.lstsq(K, p.means, rcond=1e-12)[0] == pytest.approx(9.0, rel=1e-2)

    @pytest.mark.parametrize("exact", [60, 0])
    def test_draws_from_the_gp_have_its_covariance(self, exact, monkeypatch):
        monkeypatch.setattr(bandits, "EXACT", exact)
        monkeypatch.setattr(bandits, "FREQUENCIES", 256)
        kernel, excess = ma.kernels.RBF(0.5), np.zeros((60, 60))
        for seed in range(400):
            p = bandits.gp(seed, 60, 1, 0.5)
            excess += np.outer(p.means, p.means) - kernel(p.arms, p.arms)
        assert (
            np.abs(excess / 400).max() < 0.35
        )  # five standard deviations of an average of 400 products

    @pytest.mark.parametrize(
        ("f", "where", "least"),
        [
            (bandits.ackley, [0.5] * 3, 0.0),
            (bandits.rastrigin, [0.5] * 3, 0.0),
            (bandits.branin, [(np.pi + 5) / 15, 2.275 / 15], 0.397887),
            (bandits.branin, [(5 - np.pi) / 15, 12.275 / 15], 0.397887),
            (
                bandits.hartmann6,
                [0.20169, 0.150011, 0.476874, 0.275332, 0.311652, 0.6573],
                -3.32237,
            ),
        ],
    )
    def test_functions_have_their_published_minima(self, f, where, least):
        there = np.array([where])
        assert f(there)[0] == pytest.approx(least, abs=1e-4)
        around = np.clip(there + np.random.default_rng(0).normal(0, 0.1, (200, len(where))), 0, 1)
        assert f(around).min() >= f(there)[0] - 1e-4

    def test_functions_are_maximised_on_a_grid_or_a_sobol_set_in_units_of_the_prior(self):
        grid = problem("branin:n_arms=400", 0)
        side = np.linspace(0, 1, 20)
        x = np.array([[a, b] for a in side for b in side])
        np.testing.assert_allclose(np.argsort(grid.means)[-3:], np.argsort(-bandits.branin(x))[-3:])
        sobol = problem("hartmann6:n_arms=128", 0)
        assert sobol.arms.shape == (128, 6)
        for p in (grid, sobol):
            assert p.means.mean() == pytest.approx(0, abs=1e-9)
            assert p.means.std() <= 1 + 1e-9
            assert p.best <= 3 + 1e-9

    def test_linear_problems_are_linear_and_their_tails_differ(self):
        fast, heavy = (problem(f"linear-{tail}:n_arms=500,d=20", 1) for tail in ("fast", "heavy"))
        shares = []
        for p in (fast, heavy):
            theta, residual, _, _ = np.linalg.lstsq(p.arms, p.means, rcond=None)
            assert residual.max() < 1e-20
            assert np.linalg.norm(theta) == pytest.approx(p.norm)
            np.testing.assert_allclose(np.linalg.norm(p.arms, axis=1), 1)
            spectrum = np.linalg.svd(p.arms, compute_uv=False) ** 2
            shares.append(spectrum[8:].sum() / spectrum.sum())
        assert shares[0] < 0.05
        assert shares[1] > 0.5

    def test_one_arm_is_not_linear_and_a_rich_kernel_has_room_for_it(self):
        plain, rich = (
            problem(f"misspecified{kind}:n_arms=50,d=5,gap=0.5", 0) for kind in ("", "-rich")
        )
        np.testing.assert_array_equal(plain.means, rich.means)
        best = int(plain.means.argmax())
        others = np.delete(np.arange(50), best)
        theta, residual, _, _ = np.linalg.lstsq(plain.arms[others], plain.means[others], rcond=None)
        assert residual.max() < 1e-20
        assert plain.best == pytest.approx(plain.means[others].max() + 0.5)
        assert plain.best > plain.arms[best] @ theta + 0.5
        K = rich.kernel(rich.arms, rich.arms)
        assert rich.means @ np.linalg.solve(K, rich.means) <= rich.norm**2 + 1e-6

    def test_a_table_gives_its_replicates(self, monkeypatch):
        frame = tables.pl.DataFrame({"x": np.linspace(0, 1, 40), "kind": ["a", "b"] * 20})
        values = np.column_stack(
            [np.sin(np.arange(40)), np.full(40, np.nan), np.sin(np.arange(40)) + 0.1]
        )
        values[5] = [np.nan, -1e9, np.nan]
        monkeypatch.setattr(bandits, "load", lambda name: tables.Table(name, frame, values))
        p = bandits.table("anything", 0)
        assert p.arms.shape == (40, 3)
        assert p.means.argmin() == 5
        assert p.means.min() > -5  # held at the floor
        drawn = p.pull(np.repeat(7, 50), np.random.default_rng(0))
        assert set(drawn) == set(p.replicates[7, :2])
        assert p.pull(np.array([5]), np.random.default_rng(0))[0] == p.means[5]

    def test_regret_is_against_the_best_and_uniform_play_is_known(self):
        p = problem(TINY, 0)
        assert p.regret(np.array([p.means.argmax()]))[0] == 0
        assert p.regret(np.arange(60)).mean() == pytest.approx(p.uniform_regret)
        rng = np.random.default_rng(0)
        assert p.pull(np.zeros(4000, dtype=int), rng).mean() == pytest.approx(p.means[0], abs=0.01)

    def test_an_unknown_problem_is_named(self):
        with pytest.raises(ValueError, match="no problem 'nothing': there are rkhs"):
            problem("nothing", 0)


class TestRunner:
    def test_a_run_is_kept_and_is_not_run_again(self, tmp_path, capsys, monkeypatch):
        arguments = [
            "--system",
            "bkb",
            "batch-bkb",
            "--problem",
            TINY,
            "--horizon",
            "30",
            "--output",
            str(tmp_path),
        ]
        assert runner.main(arguments) == 0
        first = capsys.readouterr().out
        assert {path.name for path in tmp_path.iterdir()} == {
            f"rkhs_n_arms=60_d=1-{s}-30-0.json" for s in ("bkb", "batch-bkb")
        }
        monkeypatch.setattr(runner, "record", None)
        assert runner.main(arguments) == 0
        assert capsys.readouterr().out.splitlines()[1:] == first.splitlines()[1:]

    def test_what_is_kept(self):
        kept = json.loads(json.dumps(runner.record(Run("bkb", TINY, 300, 1))))
        assert (
            kept["system"],
            kept["problem"],
            kept["horizon"],
            kept["seed"],
            kept["completed"],
        ) == ("bkb", TINY, 300, 1, 300)
        assert kept["config"]["arms"] == [60, 1]
        assert kept["config"]["norm"] == 4.0
        assert {"numpy", "scipy", "manyarms", "python"} <= set(kept["machine"])
        assert kept["steps"][0] == 1
        assert kept["steps"][-1] == 300
        assert len(kept["steps"]) == len(kept["regret"]) == len(kept["elapsed"]) <= runner.POINTS
        assert (np.diff(kept["regret"]) >= 0).all()
        assert kept["elapsed"][-1] == pytest.approx(kept["seconds"])
        assert 0 < kept["inducing"] <= kept["arms pulled"] <= 60
        assert summary.relative(kept) < 0.3

    def test_regret_is_that_of_the_arms_pulled(self):
        p = problem(TINY, 0)
        curve = runner.play(Run("gpucb", TINY, 40, 0), p)
        assert curve.regret.sum() == pytest.approx(curve.policy.counts @ p.regret(np.arange(60)))

    def test_a_run_that_was_stopped_goes_on_with_more_time(self, tmp_path):
        run = Run("gpucb", TINY, 50, 0)
        assert runner.run_all([run], tmp_path, limit=0.0) == {}
        (kept,) = runner.read([run], tmp_path)
        assert kept["completed"] < 50
        assert runner.is_done(run, tmp_path, 0.0)
        assert not runner.is_done(run, tmp_path, 100.0)
        runner.run_all([run], tmp_path, limit=100.0)
        assert runner.read([run], tmp_path)[0]["completed"] == 50

    def test_a_refusal_is_kept_and_an_accident_is_not(self, tmp_path, monkeypatch):
        def refuses(problem, seed, horizon):
            raise KernelError("only linear kernels")

        def breaks(problem, seed, horizon):
            raise ZeroDivisionError("by accident")

        def lacks(problem, seed, horizon):
            raise MissingSystemError("no such policy")

        for name, make in (("refuses", refuses), ("breaks", breaks), ("lacks", lacks)):
            monkeypatch.setitem(SYSTEMS, name, System(make, ""))
        wanted = runner.runs(["refuses", "breaks", "lacks"], [TINY], 5, [0])
        failures = runner.run_all(wanted, tmp_path)
        assert {run.system: said for run, said in failures.items()} == {
            "breaks": "ZeroDivisionError: by accident",
            "lacks": "no such policy",
        }
        assert [kept["error"] for kept in runner.read(wanted, tmp_path)] == [
            "KernelError: only linear kernels"
        ]
        assert [path.name for path in tmp_path.iterdir()] == ["rkhs_n_arms=60_d=1-refuses-5-0.json"]

    def test_a_system_that_is_not_there_says_so(self, monkeypatch):
        monkeypatch.delattr("manyarms.bandit.GPUCB")
        with pytest.raises(MissingSystemError, match=r"manyarms has no GPUCB"):
            SYSTEMS["gpucb"].make(problem(TINY, 0), 0, 10)


class TestSummary:
    def test_intervals(self):
        mean, low, high = summary.interval([1.0, 2.0, 3.0])
        assert (mean, high - mean) == (2.0, pytest.approx(4.3027 / np.sqrt(3), rel=1e-4))
        assert low == pytest.approx(4 - high)
        assert summary.interval([2.0, 8.0], ratio=True).mean == pytest.approx(4.0)
        assert summary.interval([5.0]) == (5.0, 5.0, 5.0)

    def test_ratios_are_taken_after_as_many_steps(self):
        whole = {
            "problem": "p",
            "seed": 0,
            "completed": 100,
            "steps": [1, 100],
            "regret": [1.0, 100.0],
            "uniform regret": 2.0,
        }
        short = {**whole, "completed": 10, "steps": [1, 10], "regret": [3.0, 30.0]}
        assert summary.against([short], [whole], "regret") == pytest.approx([3.0])
        assert summary.relative(short) == pytest.approx(1.5)
        assert summary.late(whole) == pytest.approx(0.5)

    def test_exponents(self):
        x = np.array([1.0, 2.0, 5.0])
        assert summary.exponent(x, 7 * x**1.5) == pytest.approx(1.5)


def test_the_variational_bound_grows_by_the_gain():
    rng, kernel, lam = np.random.default_rng(0), ma.kernels.RBF(0.3), 0.1
    X, y = rng.random((12, 1)), rng.standard_normal(12)
    K = kernel(X, X)

    def bound(S):
        Q = K[:, S] @ np.linalg.solve(K[np.ix_(S, S)], K[S]) if S else np.zeros_like(K)
        return multivariate_normal.logpdf(y, np.zeros(12), Q + lam * np.eye(12)) - np.trace(
            K - Q
        ) / (2 * lam)

    chosen = variational.inducing_inputs(kernel, X, y, lam, 3).tolist()
    for m, best in enumerate(chosen):
        bounds = [bound([*chosen[:m], i]) if i not in chosen[:m] else -np.inf for i in range(12)]
        assert best == np.argmax(bounds)
    L = np.linalg.cholesky(K[np.ix_(chosen, chosen)])
    Z = np.linalg.solve(L, K[chosen]).T
    (gain,) = variational.gains(Z[:, :2], Z[:, 2:], y, lam)
    assert gain == pytest.approx(bound(chosen) - bound(chosen[:2]))


@pytest.mark.parametrize("name", experiments.EXPERIMENTS)
def test_an_experiment_leaves_a_json_a_page_and_a_picture(name, tmp_path):
    experiments.main(
        [name, "--quick", "--output", str(tmp_path / "docs"), "--runs", str(tmp_path / "runs")]
    )
    results = json.loads((tmp_path / "docs" / f"{name}.json").read_text())
    assert all(rows and rows[0]["system"] for rows in results["tables"].values())
    assert (tmp_path / "docs" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "docs" / f"{name}.md").read_text()
    assert page.startswith("# ")
    assert f"({name}.png)" in page
    assert "| bkb |" in page


@pytest.mark.parametrize("way", owned.WAYS)
def test_own_parts_beside_the_exact_posterior(way):
    found = owned.line(way, 60)
    assert 1 / found["√(1 + θ)"] <= found["smallest σ̃/σ"] <= found["largest"] <= found["√(1 + θ)"]
    assert found["means apart, sd"] < 0.1
    assert found["inside, %"] > 80


def test_two_processes(tmp_path):
    wanted = runner.runs(["gpucb"], [TINY], 10, [0, 1])
    assert runner.run_all(wanted, tmp_path, jobs=2) == {}
    for kept in runner.read(wanted, tmp_path):
        again = runner.record(Run(kept["system"], kept["problem"], kept["horizon"], kept["seed"]))
        assert again["regret"] == kept["regret"]


@pytest.mark.parametrize("case", ["ask", "tell", "choose"])
def test_a_profile_begins_with_the_call(case, capsys):
    profiling.main([case, "--candidates", "300", "--results", "20"])
    printed = capsys.readouterr().out
    assert f"20 calls of {case} with 300 candidates" in printed
    first = re.search(r"cumtime.*?\n(.*?\n.*?)\n", printed, re.DOTALL).group(1)
    assert f"({case})" in first  # at most the limit of threads is around it


class TestStreams:
    def test_both_kinds_of_rewards_have_variance_one(self):
        for kind in ("linear", "mixed"):
            world = streams.World.drawn(3, kind)
            rng = np.random.default_rng(0)
            values = np.concatenate([world.reward(world.offers(rng)) for _ in range(300)])
            assert abs(values.mean()) < 0.15
            assert 0.8 < values.std() < 1.3

    def test_every_part_runs(self, tmp_path, capsys, monkeypatch):
        monkeypatch.setattr(streams, "ITEMS", 300)
        monkeypatch.setattr(streams, "WINDOW", 10)
        streams.main(
            ["regret", "--requests", "40", "--seeds", "3", "--picture", f"{tmp_path}/x.png"]
        )
        assert (tmp_path / "x.png").stat().st_size > 10_000
        assert "linear  random" in capsys.readouterr().out
        assert streams.served(streams.ours(), 50, (50,)).startswith("  row      50: p50")
        streams.ten(3_000, 1, 100)
        streams.state(60)
        assert "bytes: saved in" in capsys.readouterr().out


class TestReactions:
    """Campaigns through files, as a chemist runs them."""

    @pytest.fixture
    def table(self):
        rows = [{"base": b, "heat": h} for b in ("KOH", "none") for h in range(20, 80, 4)]
        yields = [90 - abs(row["heat"] - 50) - 20 * (row["base"] == "none") for row in rows]
        frame = tables.pl.DataFrame(rows)
        return tables.Table("small", frame, np.array(yields, dtype=float)[:, None])

    @pytest.mark.slow
    def test_what_is_chosen_is_what_the_files_held(self, table):
        found = reactions.ours(table, 0, 10)
        assert len(found["chosen"]) == 10
        assert set(found["chosen"]) <= set(range(len(table)))
        assert found == reactions.ours(table, 0, 10) | {"seconds": found["seconds"]}
        assert reactions.ours(table, 1, 5)["chosen"] != found["chosen"][:5]

    @pytest.mark.slow
    def test_repeats_are_limited(self, table):
        found = reactions._noisy(table, 0, "2", 1.0)
        assert max(found["chosen"].count(i) for i in set(found["chosen"])) <= 2
        assert len(found["recommended"]) * reactions.BATCH >= len(found["chosen"])

    def test_best_so_far_and_what_is_missed(self, table):
        order = np.argsort(-table.means).tolist()
        assert reactions.best_at(table, order) == [table.means.max()] * 3
        assert reactions.best_at(table, order[2::-1]) == [table.means.max()] * 3
        assert reactions.at_random(table, 0, 100)["chosen"] != order
        assert "No run" in reactions.verdict([])
        miss = {"table": "small", "seed": 3, "trials": 100, "best": 1.0, "random": 2.0}
        assert "end below random's median: 1." in reactions.verdict([miss])
        assert "seed 3" in reactions.verdict([miss | {"trials": 25}])

    def test_a_run_is_made_once(self, tmp_path):
        made = []
        for again in (False, False, True):
            reactions.kept(tmp_path / "runs" / "a.json", again, lambda: made.append(1) or {"n": 1})
        assert len(made) == 2


@pytest.mark.parametrize("certified", [False, True])
def test_the_plain_run_is_the_algorithm(certified):
    kernel = ma.kernels.RBF(0.3)
    X, f, norm = floors.problem(200, 2, kernel, 0)
    radius = ma.Certified(norm, floors.NOISE, floors.DELTA) if certified else ma.Constant(2.0)
    policy = ma.BKB(X, kernel, regularization=floors.LAMBDA, confidence=radius, seed=0)
    plain = floors.Plain(X, kernel, norm if certified else None)
    i = 0
    for _ in range(60):
        policy.observe([i], f[[i]])
        plain.observe(i, float(f[i]))
        i = plain.choose()
        assert policy.choose() == [i]
    np.testing.assert_allclose(policy.predict().mean, plain.mean, atol=1e-8)
