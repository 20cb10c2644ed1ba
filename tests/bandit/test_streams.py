"""Streams of requests: rewards by id, late and in any order; files of a stream."""

import numpy as np
import pytest
from problems import read_only

import manyarms as ma
from manyarms.errors import (
    ArmsError,
    ObservationError,
    ParameterError,
    RequestError,
    SavedStateError,
    StateError,
)

KERNEL = ma.kernels.RBF(0.5)
RNG = np.random.default_rng(5)
OFFERS = [read_only(RNG.random((12, 3))) for _ in range(40)]


def policy_of(kernel=KERNEL, **options):
    options = {"rule": ma.Inserted(most=15), "regularization": 0.04, **options}
    return ma.BKB(None, kernel, n_features=3, **options)


def stream_of(**options):
    return ma.Stream(policy_of(), **options)


def reward(row):
    return float(np.sin(4 * row[0]) + row[1])


def run(n=30, **options):
    """A stream after some requests, the last five of them pending."""
    stream = stream_of(**options)
    for t in range(n):
        i = stream.choose(t, OFFERS[t])
        if t < n - 5:
            stream.observe(t, reward(OFFERS[t][i[0]]))
    return stream


def same(one, other):
    at = OFFERS[-1]
    np.testing.assert_array_equal(one.policy.predict(at), other.policy.predict(at))
    assert one.pending == other.pending


def test_answered_at_once_a_stream_is_its_policy():
    stream, policy = stream_of(), policy_of()
    for t, X in enumerate(OFFERS):
        i = policy.choose(arms=X)
        np.testing.assert_array_equal(stream.choose(t, X), i)
        policy.observe(X[i], reward(X[i[0]]))
        stream.observe(t, reward(X[i[0]]))
    np.testing.assert_array_equal(stream.policy.predict(X), policy.predict(X))
    assert stream.pending == ()


def test_rewards_come_late_in_any_order_and_in_batches():
    stream, policy, rows = stream_of(), policy_of(), {}
    for t in range(12):
        i = stream.choose(f"r{t}", OFFERS[t])
        rows[f"r{t}"] = OFFERS[t][i]
    assert stream.pending == tuple(rows)
    stream.observe("r7", 1.0)
    policy.observe(rows["r7"], 1.0)
    told = {"r3": 0.5, "r11": -0.5, "r0": np.float32(0.25)}
    record = stream.observe(told)
    assert len(record.sizes) == 3
    policy.observe(np.vstack([rows[id] for id in told]), list(told.values()))
    np.testing.assert_array_equal(stream.policy.predict(OFFERS[0]), policy.predict(OFFERS[0]))
    assert stream.pending == tuple(f"r{t}" for t in range(12) if t not in (7, 3, 11, 0))


def test_several_rows_of_a_request_have_a_reward_each():
    stream = run()
    X = OFFERS[-1]
    chosen = stream.choose("page", X, 3)
    np.testing.assert_array_equal(chosen, stream.policy.choose(3, arms=X))
    with pytest.raises(ObservationError, match="'page', of which 3 rows were chosen"):
        stream.observe("page", 1.0)
    assert "page" in stream.pending
    stream.observe("page", [0, 1, 0], noise=0.3)
    assert "page" not in stream.pending


def test_offers_may_change_after_the_choice():
    stream = stream_of()
    X = np.array(OFFERS[0])
    i = stream.choose(0, X)
    kept = X[i].copy()
    X[:] = 0.0
    stream.observe(0, 1.0)
    np.testing.assert_array_equal(stream.policy.belief.W, kept)


@pytest.mark.parametrize("leaves", [False, True])
def test_who_is_forgotten_must_not_depend_on_the_reward(leaves):
    """Condition 3: f is outside of the intervals where those who give little leave."""
    inside = 0
    for seed in range(15):
        noise = np.random.default_rng(seed).standard_normal(150)
        policy = policy_of(regularization=1.0, confidence=ma.Certified(1.0, 1.0))
        stream = ma.Stream(policy)
        row = OFFERS[0][:1]
        for t in range(150):
            stream.choose(t, row)
            if leaves and noise[t] < 0:
                stream.forget(t)
            else:
                stream.observe(t, noise[t])  # f is 0
        mean, std = policy.predict(row)
        inside += abs(mean[0]) <= policy.beta / np.sqrt(policy.regularization) * std[0]
    assert inside == (0 if leaves else 15)


def test_pending_rows_are_supposed_only_where_asked_for():
    stream = run()
    X = OFFERS[-1]
    waiting = np.vstack([stream._waiting[id] for id in stream.pending])
    before = stream.policy.choose(4, arms=X)
    np.testing.assert_array_equal(stream.choose("plain", X, 4), before)
    stream.forget("plain")
    supposed = stream.policy.choose(4, arms=X, pending=waiting)
    np.testing.assert_array_equal(stream.choose("supposed", X, 4, suppose=True), supposed)
    barred = stream.choose("others", X, 2, exclude=before)
    assert not set(barred) & set(before)


def test_the_oldest_requests_are_forgotten():
    stream = stream_of(remembered=3)
    for t in range(5):
        stream.choose(t, OFFERS[t])
    assert stream.pending == (2, 3, 4)
    with pytest.raises(RequestError, match=r"request 1 is not waiting.*more than 3"):
        stream.observe(1, 0.0)


@pytest.mark.parametrize("told", ["nobody", {25: 1.0, "nobody": 0.0}, {25: 1.0, 0: 0.0}])
def test_a_reward_for_an_unknown_or_answered_request_changes_nothing(told):
    stream, twin = run(), run()
    with pytest.raises(RequestError, match="is not waiting") as caught:
        stream.observe(told, *([] if isinstance(told, dict) else [1.0]))
    assert caught.value.fields["id"] in ("nobody", 0)
    assert isinstance(caught.value, LookupError)
    same(stream, twin)
    with pytest.raises(RequestError):
        stream.forget("nobody")


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda s: s.observe(25, np.nan), ObservationError),
        (lambda s: s.observe({25: 1.0, 26: "high"}), ObservationError),
        (lambda s: s.observe({25: [1.0, 2.0]}), ObservationError),
        (lambda s: s.observe({25: [[1.0], [2.0, 3.0]]}), ObservationError),
        (lambda s: s.observe(25), ObservationError),
        (lambda s: s.observe({25: 1.0}, 1.0), ParameterError),
        (lambda s: s.observe([25], 1.0), ParameterError),
        (lambda s: s.observe(2.5, 1.0), ParameterError),
        (lambda s: s.observe({25: 1.0}, noise=-1.0), ObservationError),
        (lambda s: s.choose(25, OFFERS[0]), RequestError),
        (lambda s: s.choose(None, OFFERS[0]), ParameterError),
        (lambda s: s.choose(True, OFFERS[0]), ParameterError),
        (lambda s: s.choose("a", OFFERS[0][:, :2]), ArmsError),
        (lambda s: s.choose("a", OFFERS[0], 0), ParameterError),
        (lambda s: s.choose("a", OFFERS[0], exclude=range(12)), StateError),
    ],
)
def test_what_is_refused_changes_nothing(call, error):
    stream, twin = run(), run()
    with pytest.raises(error):
        call(stream)
    same(stream, twin)


def test_supposed_rows_leave_nothing_behind():
    stream = run()
    belief = stream.policy.belief
    for t, X in enumerate(OFFERS):
        stream.policy.choose(3, arms=X, pending=np.vstack(OFFERS[: 1 + t % 3]))
    assert len(belief.inducing._places) == belief.m


def test_nothing_observed_is_nothing():
    stream = run()
    assert not len(stream.observe({}).sizes)


@pytest.mark.parametrize("policy", [ma.BKB(OFFERS[0], KERNEL), None, ma.BKB], ids=repr)
def test_a_stream_takes_a_policy_without_a_table(policy):
    with pytest.raises(ParameterError, match="without arms"):
        ma.Stream(policy)


def test_objects_are_offered_by_themselves():
    kernel = ma.kernels.Spectrum(2, "abc")
    stream = ma.Stream(ma.BKB(None, kernel, n_features=8))
    for t, words in enumerate([["abab", "bbb"], ["abba", "cabc", "aa"]]):
        stream.choose(t, words)
    stream.observe({0: 1.0, 1: 0.0})
    assert stream.policy.belief.evidence.n_observations == 2


def test_exact_posteriors_are_streamed_but_not_saved(tmp_path):
    stream = ma.Stream(ma.GPUCB(None, KERNEL, n_features=3))
    stream.choose(0, OFFERS[0])
    stream.observe(0, 1.0)
    with pytest.raises(StateError, match="Inserted"):
        stream.save(tmp_path / "stream")
    assert not list(tmp_path.iterdir())


# Files


def test_a_file_is_its_owners_and_what_cannot_be_written_is_said(tmp_path):
    stream = ma.Stream(ma.BKB(None, ma.kernels.RBF(0.5), n_features=2))
    stream.choose("a", np.eye(2))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("mine")
    (tmp_path / "stream").symlink_to(elsewhere)
    stream.save(tmp_path / "stream")  # in place of the link, not through it
    assert elsewhere.read_text() == "mine"
    assert (tmp_path / "stream").stat().st_mode & 0o777 == 0o600
    for path in (tmp_path / "none" / "stream", tmp_path):
        with pytest.raises(SavedStateError, match="cannot write"):
            stream.save(path)
    for path in (None, 3, "", "a\0b"):
        with pytest.raises(ParameterError, match="path must be"):
            stream.save(path)
        with pytest.raises(ParameterError, match="path must be"):
            ma.Stream.load(path, ma.BKB(None, ma.kernels.RBF(0.5), n_features=2))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["elsewhere", "stream"]


def test_ids_that_could_not_be_saved_are_refused():
    stream = ma.Stream(ma.BKB(None, ma.kernels.RBF(0.5), n_features=2))
    for id in (2**1024, 10**5000, True, 1.0, None):
        with pytest.raises(ParameterError, match="the id of a request"):
            stream.choose(id, np.eye(2))
    assert stream.pending == ()


@pytest.mark.parametrize("n", [0, 5, 7, 30])
def test_a_stream_that_was_saved_goes_on(tmp_path, n):
    stream, path = run(n) if n else stream_of(), tmp_path / "stream"
    stream.save(path)
    assert list(tmp_path.iterdir()) == [path]
    loaded = ma.Stream.load(path, policy_of())
    same(stream, loaded)
    for t in range(n, 38):
        i = stream.choose(t, OFFERS[t])
        np.testing.assert_array_equal(loaded.choose(t, OFFERS[t]), i)
        for each in (stream, loaded):
            each.observe({id: 0.1 * id for id in each.pending[:2]})
    same(stream, loaded)
    stream.save(path)
    same(ma.Stream.load(path, policy_of()), loaded)


def test_a_discount_and_what_is_left_out_go_on(tmp_path):
    stream = ma.Stream(policy_of(discount=0.9))
    for t, X in enumerate(OFFERS[:35]):
        stream.choose(t, X)
        stream.observe(t, np.sin(t))
    stream.save(tmp_path / "stream")
    loaded = ma.Stream.load(tmp_path / "stream", policy_of(discount=0.9))
    for each in (stream, loaded):
        each.choose("last", OFFERS[35])
        each.observe("last", 1.0)
    same(stream, loaded)
    assert loaded.policy.sketch_error == stream.policy.sketch_error > 0


def test_ids_and_several_rows_are_kept(tmp_path):
    stream = stream_of()
    for id, n in (("ü\n", 2), (7, 1), (-(2**70), 3), ("7", 1)):
        stream.choose(id, OFFERS[0], n)
    stream.save(tmp_path / "stream")
    loaded = ma.Stream.load(tmp_path / "stream", policy_of())
    assert loaded.pending == ("ü\n", 7, -(2**70), "7")
    loaded.observe({"ü\n": [1, 2], 7: 3, -(2**70): [4, 5, 6]})
    assert ma.Stream.load(tmp_path / "stream", policy_of(), remembered=2).pending[-1] == "7"


def test_every_damage_is_found(tmp_path):
    stream, path = run(), tmp_path / "stream"
    stream.save(path)
    data = path.read_bytes()
    rng = np.random.default_rng(0)
    damaged = [data[:n] for n in (0, 1, 30, 90, len(data) // 2, len(data) - 1)]
    for at in [*range(0, 90, 7), *rng.integers(len(data), size=40).tolist()]:
        damaged.append(data[:at] + bytes([data[at] ^ (1 << int(rng.integers(8)))]) + data[at + 1 :])
    damaged += [data + b"0", b"PK\x03\x04", b"\x80\x04."]
    for each in damaged:
        path.write_bytes(each)
        with pytest.raises(SavedStateError):
            ma.Stream.load(path, policy_of())


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (lambda: policy_of(regularization=0.05), "regularization=0.04"),
        (lambda: policy_of(noise=0.3), "noise"),
        (lambda: policy_of(ma.kernels.RBF(0.51)), "another kernel"),
        (lambda: policy_of(ma.kernels.RBF([1.0, 1.0])), "another kernel|lengthscales"),
        (lambda: ma.BKB(None, KERNEL, n_features=2, regularization=0.04), "n_features=3"),
        (lambda: policy_of(rule=ma.Sampled()), "Inserted"),
    ],
)
def test_another_policy_is_told_apart(tmp_path, policy, message):
    run().save(tmp_path / "stream")
    with pytest.raises(SavedStateError, match=message):
        ma.Stream.load(tmp_path / "stream", policy())


def test_what_cannot_be_read_or_resumed_says_so(tmp_path):
    with pytest.raises(SavedStateError, match="cannot read"):
        ma.Stream.load(tmp_path / "none", policy_of())
    stream = run()
    stream.save(tmp_path / "stream")
    with pytest.raises(StateError, match="observed nothing"):
        ma.Stream.load(tmp_path / "stream", stream.policy)
    with pytest.raises(ParameterError):
        ma.Stream.load(tmp_path / "stream", ma.BKB(OFFERS[0], KERNEL))
    with pytest.raises(SavedStateError, match="No such file"):
        stream.save(tmp_path / "nowhere" / "stream")
    assert "5 requests pending" in repr(stream)


def test_a_radius_that_doubles_its_norm_goes_on(tmp_path):
    radius = ma.Certified(0.01, 0.2, double=True)
    stream = ma.Stream(policy_of(confidence=radius))
    for t, X in enumerate(OFFERS[:20]):
        stream.choose(t, X)
        stream.observe(t, 3.0)
    assert stream.policy.evidence.norm > 0.01
    stream.save(tmp_path / "stream")
    loaded = ma.Stream.load(tmp_path / "stream", policy_of(confidence=radius))
    assert loaded.policy.beta == stream.policy.beta
