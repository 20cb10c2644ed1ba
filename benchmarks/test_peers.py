"""The tables and tools that benchmarks/ compares, at tiny sizes and without a download."""

import gzip
import json
from dataclasses import replace

import archive
import fresh
import numpy as np
import peers
import polars as pl
import pytest
import spaces
import tables
import transfer
import verdicts
from extras import needs
from tables import Table

optimizer = needs("bench", "optimizer")

pytestmark = pytest.mark.slow


@pytest.fixture
def grid() -> Table:
    """48 configurations, a third of which fail, in two replicates."""
    kind, level, size = (axis.ravel() for axis in np.meshgrid(range(3), range(4), range(4)))
    value = np.exp(-((level - 2) ** 2)) + 0.1 * kind
    values = np.column_stack([value, value + 0.01])
    values[size == 3] = np.nan
    frame = pl.DataFrame({"kind": np.array(list("abc"))[kind], "rate": 10.0**level, "size": size})
    return Table("grid", frame, values)


@pytest.fixture
def stones() -> Table:
    """300 rows with two columns of many values and one of categories; exact."""
    rng = np.random.default_rng(0)
    frame = pl.DataFrame({"x": rng.random(300), "y": rng.random(300), "cut": ["a", "b"] * 150})
    return Table("stones", frame, (frame["x"] - frame["y"] ** 2).to_numpy()[:, None])


class TestTables:
    def test_a_failing_candidate_counts_as_nothing_and_has_no_value(self, grid):
        assert grid.failing.sum() == 12
        assert (grid.means[grid.failing] == 0).all()
        rng = np.random.default_rng(0)
        drawn = [grid.draw(i, rng) for i in range(len(grid))]
        assert [value is None for value in drawn] == grid.failing.tolist()
        assert grid.regret(int(grid.means.argmax())) == 0
        assert np.median(grid.regret(np.arange(48))) == pytest.approx(1)
        assert "12 fail" in tables.describe(grid)

    def test_only_one_value_without_noise_is_exact(self, grid, stones):
        assert stones.is_exact
        assert not grid.is_exact
        assert not replace(stones, noise=0.1).is_exact

    def test_only_fingerprints_have_a_type_said_by_hand(self, grid):
        bits = pl.Series("f", np.eye(4, dtype=np.uint8), dtype=pl.Array(pl.UInt8, 4))
        assert grid.columns == {}
        assert Table("m", pl.DataFrame({"f": bits}), np.ones((4, 1))).columns == {"f": "bits"}

    def test_no_table_is_both_for_development_and_held_out(self):
        assert len({*tables.DEVELOPMENT, *tables.HELD_OUT}) == 21
        assert {*tables.DEVELOPMENT, *tables.HELD_OUT, *tables.MORE} <= set(tables.SOURCES)
        assert not {*tables.MORE} & {*tables.DEVELOPMENT, *tables.HELD_OUT}

    def test_a_table_is_made_once(self, grid, tmp_path, monkeypatch):
        monkeypatch.setenv("MANYARMS_TABLES", str(tmp_path))
        source = tables.SOURCES["gpu"]._replace(make=lambda: (grid.frame, grid.values))
        monkeypatch.setitem(tables.SOURCES, "gpu", source)
        made = tables.load("gpu")
        monkeypatch.setitem(tables.SOURCES, "gpu", source._replace(make=None))
        for found in (made, tables.load("gpu")):
            assert found.frame.equals(grid.frame)
            np.testing.assert_array_equal(found.values, grid.values)

    def test_a_table_of_a_folder(self, tmp_path):
        text = "kind,value_1,size,value_2\na,1,0.5,\nb,,2,\na,3,7,4\n"
        (tmp_path / "mine.csv.gz").write_bytes(gzip.compress(text.encode()))
        found = tables.load("mine", tmp_path)
        assert found.frame.to_dict(as_series=False) == {
            "kind": ["a", "b", "a"],
            "size": [0.5, 2, 7],
        }
        np.testing.assert_array_equal(found.values, [[1, np.nan], [np.nan, np.nan], [3, 4]])
        assert found.failing.tolist() == [False, True, False]

    def test_tables_of_a_folder_are_run_by_name(self, tmp_path, monkeypatch, capsys):
        text = "x,value_1\n" + "".join(f"{i},{i * i}\n" for i in range(40))
        (tmp_path / "mine.csv.gz").write_bytes(gzip.compress(text.encode()))
        folder = ["--csv", str(tmp_path), "--output", str(tmp_path / "runs")]
        arguments = ["peers.py", "--table", "mine", "--peer", "random", "--budget", "10"]
        monkeypatch.setattr("sys.argv", [*arguments, *folder])
        peers.main()
        (kept,) = archive.read(tmp_path / "runs")
        assert (kept["table"], len(kept["chosen"])) == ("mine", 10)
        monkeypatch.setattr("sys.argv", arguments)
        with pytest.raises(SystemExit):
            peers.main()
        assert "no table mine" in capsys.readouterr().err


class TestSpaces:
    def test_every_row_is_found_by_its_own_columns(self, grid, stones):
        for table in (grid, stones):
            space = spaces.Space(spaces.parameters(table))
            for i in range(len(table)):
                assert space.row({p.name: p.codes[i] for p in space.parameters}) == i

    def test_kinds_and_the_nearest_row(self, stones):
        space = spaces.Space(spaces.parameters(stones))
        assert [p.kind for p in space.parameters] == ["range", "range", "category"]
        x, y, _ = (p.codes for p in space.parameters)
        row = space.row({"x": 0.3, "y": 0.6, "cut": 1})
        distance = (x - 0.3) ** 2 + (y - 0.6) ** 2 + (np.arange(300) % 2 != 1)
        assert row == distance.argmin()

    def test_levels_are_even_and_categories_one_hot(self, grid):
        X = spaces.encode(grid)
        assert X.shape == (48, 5)
        assert set(X[:, 3]) == {0, 1 / 3, 2 / 3, 1}
        assert (X[:, :3].sum(axis=1) == 1).all()


TOOLS = {
    "random": "numpy",
    "manyarms": "manyarms",
    "tpe": "optuna",
    "tpe-univariate": "optuna",
    "optuna-gp": "torch",
    "smac": "smac",
    "botorch": "botorch",
    "botorch-anew": "botorch",
}


@pytest.mark.parametrize(("peer", "package"), TOOLS.items())
def test_a_peer_runs_records_what_happened_and_runs_again_alike(peer, package, grid):
    needs("bench", package)
    kept = json.loads(json.dumps(peers.record(grid, peer, 20, 3)))
    assert len(kept["chosen"]) == len(kept["rewards"]) == 20
    assert len(kept["recommended"]) == 2
    assert set(kept["recommended"]) <= set(kept["chosen"])
    failed = [reward is None for reward in kept["rewards"]]
    assert failed == grid.failing[kept["chosen"]].tolist()
    assert not grid.failing[kept["recommended"][-1]]
    assert kept["versions"]
    assert kept["seconds"] >= 0
    assert peers.record(grid, peer, 20, 3)["chosen"] == kept["chosen"]


@pytest.mark.parametrize("peer", ["random", "manyarms", "tpe"])
def test_several_at_a_time_and_some_results_never_come(peer, stones, monkeypatch):
    needs("bench", TOOLS[peer])
    monkeypatch.setattr(peers, "LOST", 0.3)
    kept = peers.record(stones, peer, 30, 0, batch=8)
    assert len(kept["chosen"]) == 30
    assert 0 < sum(reward is None for reward in kept["rewards"]) < 20


def test_tools_of_columns_do_not_apply_to_fingerprints(grid):
    bits = pl.Series("f", np.eye(4, dtype=np.uint8), dtype=pl.Array(pl.UInt8, 4))
    molecules = Table("m", pl.DataFrame({"f": bits}), np.arange(4.0)[:, None])
    assert not peers.applies(molecules, "tpe")
    assert peers.applies(molecules, "botorch")
    assert peers.applies(grid, "tpe")


def test_scores_of_botorch_are_its_own(stones):
    torch = needs("bench", "torch")
    botorch_peer = needs("bench", "botorch_peer")
    peer = botorch_peer.BoTorch(stones, 20, 0)
    for i in range(0, 300, 20):
        peer.tell(i, float(stones.means[i]))
    peer._model = peer._fitted()
    with torch.no_grad():
        predict = botorch_peer.predictor(peer._model)
        best = predict(peer._X[peer._rows])[0].max()
        ours = botorch_peer.log_ei(*predict(peer._X), best)
        theirs = torch.cat(peer._own_scores(best))
    # The values are standardised, so the improvement has another unit.
    shift = torch.log(peer._model.outcome_transform.stdvs[0, 0])
    likely = theirs > -20
    np.testing.assert_allclose(ours[likely] + shift, theirs[likely], atol=1e-6)


def run(table: str, peer: str, seed: int, chosen: list[int], recommended: list[int]) -> dict:
    """As peers.py keeps it."""
    return {
        "table": table,
        "peer": peer,
        "budget": len(chosen),
        "batch": 1,
        "seed": seed,
        "seconds": 2.0,
        "versions": {"python": "3"},
        "chosen": chosen,
        "recommended": recommended,
    }


class TestSummary:
    def test_a_row(self, stones):
        order = np.argsort(-stones.means)
        first = order[:20][::-1].tolist()  # each better than the one before
        found = verdicts.summary(stones, [run("stones", "a", 0, first, [first[9], first[18]])])
        regret = stones.regret(np.array(first))
        assert found.mean == pytest.approx(regret.mean())
        assert found.best == 0
        assert found.recommended == pytest.approx(regret[18])
        assert found.best_measured == 0.5
        assert found.failing == 0

    def test_peers_are_compared_on_the_tables_that_both_have(self, grid, stones):
        by_table: verdicts.Rows = {}
        for table in (grid, stones):
            order = np.argsort(-table.means)
            good, bad = order[1:21].tolist(), order[20:40].tolist()
            by_table[table.name] = {
                peer: verdicts.summary(table, [run(table.name, peer, 0, rows, rows[:2])])
                for peer, rows in (
                    (verdicts.OURS, bad[::-1]),
                    (verdicts.EARN, good),
                    ("bad", bad),
                )
            }
        del by_table["grid"]["bad"]
        found = verdicts.compared(by_table, "bad")
        assert (found.tables, found.no_worse, found.worse) == (1, 1, {})
        assert found.ratio < 1
        assert found.best[0] == found.best[1]  # what find found, earn's mean regret
        assert found.recommended[0] > found.recommended[1]
        by_table["stones"]["better"] = by_table["stones"].pop(verdicts.EARN)
        by_table["stones"][verdicts.EARN] = by_table["stones"]["bad"]
        back = verdicts.compared(by_table, "better")
        assert back.worse == {"stones": pytest.approx(1 / found.ratio)}
        said = verdicts.verdicts(by_table, {"grid": grid, "stones": stones})
        assert any("mean regret of earn no worse than bad's on 1 of 1" in line for line in said)

    def test_runs_are_kept_and_come_back(self, tmp_path):
        one, two = (run("stones", "a", seed, [seed] * 20, [seed] * 2) for seed in (0, 1))
        (tmp_path / "folder").mkdir()
        for number, each in enumerate((two, one)):
            text = json.dumps(each | {"rewards": [0.5] * 20})
            (tmp_path / "folder" / f"{number}.json").write_text(text)
        assert archive.read(tmp_path / "folder") == [one, two]
        kept = tmp_path / "runs.json.gz"
        archive.write([two, one], kept)
        assert archive.read(kept) == [one, two]
        assert archive.merged([one, two], [one | {"seconds": 9.0}])[0]["seconds"] == 9.0

    def test_a_page_a_json_and_a_picture(self, grid, stones, tmp_path, monkeypatch, capsys):
        made = {"gpu": replace(grid, name="gpu"), "diamonds": replace(stones, name="diamonds")}
        monkeypatch.setattr(optimizer, "load", made.__getitem__)
        monkeypatch.setitem(optimizer.GROUPS, "all", tuple(made))
        folder = tmp_path / "runs"
        folder.mkdir()
        for name, table in made.items():
            for peer in ("random", "manyarms", "manyarms-earn"):
                for budget in (200, 400):
                    kept = peers.record(table, peer, budget, 0) if peer == "random" else None
                    best = np.argsort(-table.means)[:20].tolist() * (budget // 20)
                    kept = kept or run(name, peer, 0, best, best[: budget // 10])
                    (folder / f"{name}-{peer}-{budget}.json").write_text(json.dumps(kept))
        arguments = ["--output", str(tmp_path)]
        optimizer.main(["--runs", str(folder), *arguments])
        printed = capsys.readouterr().out
        assert "met: 0.0 evaluations of manyarms fail on gpu (bar 15)" in printed
        optimizer.main(arguments)
        assert capsys.readouterr().out == printed
        results = json.loads((tmp_path / "optimizer.json").read_text())
        assert results["200"]["diamonds"]["manyarms"]["best"] == 0
        assert set(results["400 x 1"]) == {"gpu", "diamonds"}
        page = (tmp_path / "optimizer.md").read_text()
        assert "12 runs on 2 tables" in page
        assert "## 400 evaluations" in page
        assert (tmp_path / "optimizer.png").read_bytes().startswith(b"\x89PNG")


def test_a_page_of_tables_of_a_folder(stones, tmp_path, monkeypatch):
    monkeypatch.setattr(fresh, "SOURCES", {"stones": "simulated", "same": "again"})
    monkeypatch.setattr(fresh, "SEEN", ("stones",))
    monkeypatch.setattr(fresh, "load", lambda name, folder: stones)
    order = np.argsort(-stones.means).tolist()
    folder = tmp_path / "runs"
    folder.mkdir()
    for place, peer in enumerate(fresh.PEERS):
        for seed in range(3):
            chosen = order[30 * place + seed :][:100]
            for name in ("stones", "same"):
                kept = run(name, peer, seed, chosen, [order[place]])
                (folder / f"{name}-{peer}-{seed}.json").write_text(json.dumps(kept))
    fresh.main(["--csv", str(tmp_path), "--runs", str(folder), "--output", str(tmp_path)])
    page = (tmp_path / "fresh.md").read_text()
    assert "no larger on 2 of 2 tables" in page
    assert "of manyarms on no table, of manyarms-earn on no table." in page
    found = fresh.gathered(archive.read(folder), {"stones": stones, "same": stones})
    assert fresh.worse_than_random(found, "manyarms") == []
    assert fresh.worse_than_random({**found, "random": found["manyarms"]}, "tpe")
    regret = stones.regret(np.array(order))
    assert found["botorch"]["stones"][1]["at 20"] == pytest.approx(regret[61])
    assert found["botorch"]["stones"][1]["recommended"] == pytest.approx(regret[2])
    first = fresh.differences({**found, "botorch": found["manyarms"]}, ("stones",))[0]
    assert (first["pairs"], first["best"]) == (3, "0.000 ± 0.000")


class TestTransfer:
    def test_a_page_is_made_of_all_kinds(self, stones, monkeypatch):
        monkeypatch.setattr(transfer, "RESULTS", 60)
        monkeypatch.setattr(transfer, "load", lambda name: stones)
        kept = [
            {"pair": transfer.PAIRS[0], "kind": kind, "seed": 0}
            | transfer.played(stones, stones, kind, 12, 0)
            for kind in transfer.KINDS
        ]
        lines = {line["prior"]: line for line in transfer.summary(kept)}
        early = {kind: float(line["all 12"]) for kind, line in lines.items()}
        assert early["given"] < min(early["without"], early["reversed"])
        page = transfer.published(kept, [0])
        assert "| permuted |" in page
        assert "--seed 0 --publish" in page

    def test_a_permuted_prior_has_the_same_values(self, stones, monkeypatch):
        monkeypatch.setattr(transfer, "RESULTS", 60)
        rows, values = transfer.prior_of(stones, "given", 3)
        same, others = transfer.prior_of(stones, "permuted", 3)
        assert rows.equals(same)
        assert sorted(values) == sorted(others)
        assert list(values) != list(others)
        assert transfer.prior_of(stones, "without", 3) is None
