"""Boxes: encoding, points, rows."""

import numpy as np
import pytest

from manyarms.domains import Box
from manyarms.errors import ArmsError, ParameterError

MIXED = {
    "lr": (1e-4, 1e-1, "log"),
    "act": ["relu", "tanh", "gelu"],
    "units": (8, 512),
    "drop": (0.0, 0.5),
}


def test_points_survive_encoding():
    box = Box(**MIXED)
    assert box.names == ["lr", "act", "units", "drop"]
    rows = box.sample(200, np.random.default_rng(0))
    assert rows.shape == (200, 4)
    assert rows[:, :3].min() >= 0
    assert rows[:, :3].max() <= 1
    points = box.decode(rows)
    np.testing.assert_allclose(box.encode(points), rows, atol=1e-12)
    assert {point["act"] for point in points} == {"relu", "tanh", "gelu"}
    assert all(isinstance(point["units"], int) and 8 <= point["units"] <= 512 for point in points)
    assert 70 < sum(point["lr"] < 10**-2.5 for point in points) < 130  # half of a log scale
    ends = box.encode(
        [
            {"lr": 1e-4, "act": "relu", "units": 512, "drop": 0.5},
            {"lr": 1e-1, "act": "gelu", "units": 8, "drop": 0},
        ]
    )
    np.testing.assert_array_equal(ends, [[0, 1, 1, 0], [1, 0, 0, 2]])


def test_an_array_of_bounds_makes_points_tuples():
    box = Box(np.array([[0, 2], [-5, 5]]))
    assert box.decode([[0.25, 0.5]]) == [(0.5, 0.0)]
    np.testing.assert_array_equal(box.encode((0.5, 0.0)), [[0.25, 0.5]])
    np.testing.assert_array_equal(
        box.encode(np.array([[0.5, 0.0], [2.0, 5.0]])), [[0.25, 0.5], [1, 1]]
    )
    assert "x1=(-5.0, 5.0)" in repr(box)


@pytest.mark.parametrize(
    ("arguments", "columns"),
    [
        ((), {}),
        (([[0, 1]],), {"x": (0.0, 1.0)}),
        (([[0, 0]],), {}),  # no width
        (([[1, 0]],), {}),
        (([0, 1],), {}),
        (([[0, np.nan]],), {}),
        (([[0, np.inf]],), {}),
        (([[-1e308, 1e308]],), {}),
        (("ab",), {}),
        ((), {"x": (1.0, 1.0)}),
        ((), {"x": (0.0, 1.0, "log")}),
        ((), {"x": (0.0, 1.0, "exp")}),
        ((), {"x": (0.0, "1")}),
        ((), {"x": 3.0}),
        ((), {"x": ["only"]}),
        ((), {"x": ["a", "a"]}),
        ((), {"x": [[64, 64], [128]]}),
        ((), {"x": [np.zeros(2), np.ones(2)]}),
    ],
)
def test_a_box_that_makes_no_sense(arguments, columns):
    with pytest.raises(ParameterError):
        Box(*arguments, **columns)


@pytest.mark.parametrize(
    "point",
    [
        {"lr": 1e-2, "act": "relu", "units": 8},
        {"lr": 1e-2, "act": "relu", "units": 8, "drop": 0.1, "more": 1},
        {"lr": 1.0, "act": "relu", "units": 8, "drop": 0.1},
        {"lr": np.nan, "act": "relu", "units": 8, "drop": 0.1},
        {"lr": 1e-2, "act": "swish", "units": 8, "drop": 0.1},
        {"lr": 1e-2, "act": ["relu"], "units": 8, "drop": 0.1},
        {"lr": 1e-2, "act": np.array(["relu", "tanh"]), "units": 8, "drop": 0.1},
        {"lr": 1e-2, "act": "relu", "units": 8.5, "drop": 0.1},
        (1e-2, "relu", 8, 0.1),
        "relu",
        7,
    ],
)
def test_a_point_outside_the_box(point):
    with pytest.raises(ArmsError):
        Box(**MIXED).encode(point)


def test_rows_outside_the_box():
    box = Box(**MIXED)
    good = box.sample(1, np.random.default_rng(0))
    np.testing.assert_array_equal(box.checked(good), good)
    for column, value in ((0, 1.1), (0, -0.01), (0, np.nan), (1, 1e-4), (3, 0.5), (3, 3.0)):
        bad = good.copy()
        bad[0, column] = value
        with pytest.raises(ArmsError):
            box.checked(bad)


def test_whole_numbers_are_drawn_alike():
    rng = np.random.default_rng(0)
    drawn = Box(x=(0, 2), y=(1, 3, "log")).sample(30_000, rng)
    np.testing.assert_allclose(
        np.unique(drawn[:, 0], return_counts=True)[1] / 30_000, 1 / 3, atol=0.02
    )
    widths = np.diff(np.log([0.5, 1.5, 2.5, 3.5]))
    np.testing.assert_allclose(
        np.unique(drawn[:, 1], return_counts=True)[1] / 30_000, widths / widths.sum(), atol=0.02
    )
