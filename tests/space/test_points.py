"""What people call candidates: a pool's ids as they are typed, and numbers of a box's points."""

import numpy as np
import pytest

import manyarms as ma
from manyarms.errors import UnknownArmError
from manyarms.space.points import NewPoint, Points

NAMED = [{"x": 0.5, "fan": "on"}, {"x": 0.25, "fan": "off"}]
UNNAMED = [(0.5, 1.0), (0.25, -1.0)]


@pytest.mark.parametrize(
    ("box", "points"),
    [(ma.Box(x=(0.0, 1.0), fan=["on", "off"]), NAMED), (ma.Box([[0, 1], [-5, 5]]), UNNAMED)],
    ids=["named", "unnamed"],
)
def test_points_have_numbers_in_the_order_in_which_they_became_known(box, points):
    known = Points.none(box).known(points[:1])[0].known(points)[0]
    assert known.labels(points) == [1, 2]
    assert known.labels([]) == known.ids_of([]) == []
    assert known.ids_of([2, "1", " 2 "]) == [points[1], points[0], points[1]]
    before = Points.none(box).known(points[:1])[0]
    number, new = before.labels(points)
    assert (number, str(new)) == (1, "new")
    assert before.ids_of([new]) == points[1:]
    assert known.labels(known.ids_of([NewPoint(new)])) == [2]
    for wrong in (0, 3, -1, "x", "1.0", "9" * 30, None, True):
        with pytest.raises(UnknownArmError, match="those known are 1 to 2"):
            known.ids_of([wrong])


def test_a_pool_calls_its_candidates_by_their_ids_in_their_type():
    numbered = ma.Pool.from_array(np.eye(3))
    assert numbered.ids_of(["0", 1, "2.0", "x"]) == [0, 1, 2, "x"]
    named = ma.Pool.from_dicts([{"name": "001", "x": 1}, {"name": "b", "x": 2}], id="name")
    assert named.ids_of(["1", "001", "b", "c"]) == ["001", "001", "b", "c"]
    assert named.labels(["b"]) == ["b"]
    assert (named.id_column, numbered.id_column) == ("name", None)
