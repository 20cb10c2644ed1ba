"""Figure 1: away from the data BKB keeps the exact posterior's doubt, SoR loses it."""

from pathlib import Path

import numpy as np
import pytest
from extras import needs

needs("demo", "matplotlib")
import figure1  # noqa: E402
from figure1 import Snapshot  # noqa: E402

ALPHA = 3.0
"""(1 + ε)/(1 − ε) at ε = ½."""


@pytest.fixture(scope="module")
def taken() -> list[Snapshot]:
    return figure1.snapshots()


@pytest.fixture(params=range(len(figure1.TIMES)), ids=[f"t={t}" for t in figure1.TIMES])
def snapshot(request: pytest.FixtureRequest, taken: list[Snapshot]) -> Snapshot:
    return taken[request.param]


def test_evaluations_are_in_the_left_half(taken: list[Snapshot]) -> None:
    assert tuple(len(s.observed) for s in taken) == figure1.TIMES
    assert all(s.observed.max() <= 0.5 and np.isin(s.inducing, s.observed).all() for s in taken)


def test_subset_of_regressors_starves_and_bkb_does_not(snapshot: Snapshot) -> None:
    far = np.argmin(np.abs(snapshot.x - 0.9))
    assert snapshot.exact.std[far] == pytest.approx(1.0, rel=0.01)
    assert snapshot.bkb.std[far] == pytest.approx(snapshot.exact.std[far], rel=0.01)
    assert snapshot.sor.std[far] < 0.01


def test_theorem_1_sandwich_at_every_point(snapshot: Snapshot) -> None:
    ratio = (snapshot.bkb.std / snapshot.exact.std) ** 2
    assert ratio.min() >= 1 / ALPHA
    assert ratio.max() <= ALPHA


def test_bkb_covers_the_function(snapshot: Snapshot) -> None:
    assert figure1.coverage(snapshot.f, snapshot.bkb) >= 0.95
    assert figure1.coverage(snapshot.f, snapshot.sor) < 0.95


def test_dictionary_is_smaller_than_the_data(taken: list[Snapshot]) -> None:
    assert len(taken[-1].inducing) < 50 < len(taken[-1].observed)


def test_draws_a_picture(taken: list[Snapshot], tmp_path: Path) -> None:
    path = tmp_path / "figure1.png"
    figure1.draw(taken, path)
    assert path.read_bytes().startswith(b"\x89PNG")
