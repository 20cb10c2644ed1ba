"""From values to rewards and back: increasing, invertible, the better half to scale."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from manyarms.campaign.results import Warp

NEXT = float(np.nextafter(0.1, 1))
values = st.one_of(
    st.lists(st.integers(-3, 3).map(float), min_size=1, max_size=12),  # ties
    st.lists(
        st.floats(-10, 10, allow_subnormal=False).map(lambda x: round(x, 6)),
        min_size=1,
        max_size=30,
    ),
)


def pieces(warp):
    """Slopes between the knots, first to last."""
    return np.diff(warp.rewards) / np.diff(warp.values)


def check(means):
    warp = Warp.half_log(np.array(means), max(means))
    for array in (warp.values, warp.rewards):
        assert np.isfinite(array).all()
        assert (np.diff(array) > 0).all()
    assert np.isfinite(warp.slope)
    assert warp.slope > 0
    return warp


@given(values)
@example([4.2])
@example([0.0, 0.0, 0.0])
@example([5.0] * 7 + [6.0])
@example([5.0] * 7 + [4.0])
@example([-1e3, 0.0, 0.1, 0.2, 0.3])
def test_it_is_strictly_increasing_and_undone_by_its_inverse(means):
    warp = check(means)
    spread = float(np.ptp(means)) or 1.0
    inside = np.linspace(min(means), max(means), 41)
    outside = np.array([-1e6, -1e3, -10.0, 10.0, 1e3, 1e6]) * spread
    at_floor = float(warp.value(np.array([warp.floor]))[0])
    for at in (np.array(means), inside, outside[outside > at_floor]):
        rewards = warp.reward(at)
        np.testing.assert_allclose(
            warp.value(rewards), at, rtol=1e-9, atol=1e-9 * (spread + np.abs(means).max())
        )
        apart = np.diff(np.sort(at)) > 1e-6 * spread
        assert (np.diff(warp.reward(np.sort(at)))[apart] > 0).all()
    far = np.array([-50.0, -5.0, 0.0, 5.0, 50.0])
    assert (np.diff(warp.value(far)) > 0).all()
    np.testing.assert_allclose(
        warp.reward(warp.value(far)), np.maximum(far, warp.floor), rtol=1e-6, atol=1e-6
    )
    assert (
        warp.reward(outside[outside <= at_floor]) == pytest.approx(warp.floor)
    ) or at_floor < outside.min()


@given(values)
def test_the_better_half_keeps_its_distances_and_the_worse_goes_by_logarithm(means):
    means = np.array(means)
    warp, median = check(means), np.median(means)
    better = np.concatenate([means[means >= median], median + np.array([0.0, 1.0, 7.0, 1e3])])
    np.testing.assert_allclose(
        warp.reward(better), (better - median) * warp.slope, rtol=1e-9, atol=1e-9
    )
    if (means > median).any():
        size = np.sqrt(np.mean(np.square(warp.reward(means[means >= median]))))
        highest = warp.reward(means).max()
        assert highest <= 3 + 1e-9
        assert size == pytest.approx(1.0) or (size < 1 and highest == pytest.approx(3.0))
    worse = means[means < median - 1e-9]
    np.testing.assert_array_less(warp.reward(worse), 0)
    depth = np.log1p((median - worse) * warp.slope)
    near = depth <= 3
    np.testing.assert_allclose(warp.reward(worse)[near], -depth[near], rtol=1e-6, atol=1e-8)
    assert (warp.reward(worse)[~near] > np.maximum(-depth[~near], -5.2)).all()


def test_values_that_differ_by_noise_alone_stay_close_together():
    rng = np.random.default_rng(0)
    noise = 1e-3 * rng.standard_normal(50)
    warp = Warp.half_log(np.concatenate([noise, np.linspace(1, 3, 60)]), 3.0)
    assert np.ptp(warp.reward(noise)) < 0.01


@given(values, st.sampled_from([1e-12, 1e-3, 8.0, 1e9]), st.sampled_from([0.0, 1.0, -50.0]))
def test_the_units_do_not_matter(means, scale, shift):
    means = np.array(means)
    if not np.ptp(means):
        return
    rewards = check(means).reward(means)
    np.testing.assert_allclose(
        check(scale * (means + shift)).reward(scale * (means + shift)),
        rewards,
        rtol=1e-6,
        atol=1e-6,
    )


def test_knots():
    warp = Warp.half_log(np.array([3.0, 1.0, 2.0, 4.0, -90.0]), 4.0)
    np.testing.assert_allclose(warp.reward(np.array([2.0])), 0.0, atol=1e-12)
    assert warp.slope == pytest.approx(1 / np.sqrt((0 + 1 + 4) / 3))
    low, high = warp.reward(np.array([-90.0, 1.0]))
    deep = np.log1p(92 * warp.slope)
    assert low == pytest.approx(-3 - np.log1p(np.log1p(deep - 3)))
    assert high == pytest.approx(-np.log1p(warp.slope))


def test_identity_and_shift():
    at = np.array([-1e9, -2.0, 0.0, 0.5, 3.0, 1e9])
    np.testing.assert_array_equal(Warp.identity().reward(at), at)
    assert Warp.identity().slope == 1.0
    warp = Warp.half_log(np.array([3.0, 1.0, 2.0, 4.0, -90.0]), 4.0)
    moved = warp.shifted(0.3)
    np.testing.assert_allclose(moved.reward(at), warp.reward(at) - 0.3)
    np.testing.assert_allclose(moved.value(warp.reward(at[1:]) - 0.3), at[1:], rtol=1e-9, atol=1e-9)
    assert moved.slope == pytest.approx(warp.slope)


@pytest.mark.parametrize("outlier", [-1e3, -1e5, -1e7, -1e9, -1e12, -1e300])
def test_a_value_far_below_moves_no_other(outlier):
    rest = np.array([0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8])
    warp, near = check([outlier, *rest]), check([-1.0, *rest])
    assert warp.slope == pytest.approx(near.slope)
    np.testing.assert_allclose(warp.reward(rest), near.reward(rest), atol=1e-9)
    np.testing.assert_allclose(warp.value(warp.reward(rest)), rest, atol=1e-9)
    assert warp.value(warp.reward(np.array([outlier]))) == pytest.approx(outlier, rel=1e-6)


@pytest.mark.parametrize("outlier", [1e3, 1e7, 1e150, 1e300])
def test_a_value_far_above_is_a_finite_map(outlier):
    rest = np.array([0.0, 0.1, 0.2, 0.3, 0.4, 0.5])
    warp = check([*rest, outlier])
    assert warp.value(warp.reward(np.array([outlier]))) == pytest.approx(outlier, rel=1e-6)
    assert (np.diff(warp.reward(rest)) >= 0).all()


@pytest.mark.parametrize(
    "means",
    [
        [-1e300, 1e300],
        [1e300, 1e300],
        [1e20] * 5,
        [1e16, 1e16 + 2, 1e16 + 4],
    ],
)
def test_huge_values_are_a_finite_map(means):
    warp = check(means)
    np.testing.assert_allclose(warp.value(warp.reward(np.array(means))), means, rtol=1e-9)


@pytest.mark.parametrize(
    "means",
    [
        [0.1, 0.1, 0.1, NEXT],
        [0.1, NEXT, NEXT],
        [NEXT] * 5 + [0.1],
        [1e9 + 0.1, np.nextafter(1e9 + 0.1, 0)],
    ],
)
def test_means_that_differ_by_rounding_are_one_value(means):
    """The mean of three times 0.1 is not 0.1."""
    warp = check(means)
    assert warp.slope < 1e12
    assert np.ptp(warp.reward(np.array(means))) < 1e-3


def test_no_piece_is_flat():
    warp = check(np.concatenate([-np.geomspace(1.0, 1e5, 30), np.linspace(0.0, 1.0, 31)]))
    assert (pieces(warp) > 0).all()
