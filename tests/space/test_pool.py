"""Tables of candidates: ids, types, encoded features, duplicates, additions, errors."""

import datetime
import string
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
from extras import needs
from hypothesis import given
from hypothesis import strategies as st

from manyarms.equal import group
from manyarms.errors import ArmsError, ParameterError, UnknownArmError
from manyarms.kernels import unpack
from manyarms.space.columns import Bits
from manyarms.space.pool import Feature, Pool

ROWS = [
    {"name": "a", "solvent": "water", "dose": 1.0, "steps": 1, "dry": True, "print": "00110011"},
    {"name": "b", "solvent": "ethanol", "dose": 2.0, "steps": 3, "dry": False, "print": "10110011"},
    {"name": "c", "solvent": "water", "dose": 3.0, "steps": 2, "dry": True, "print": "00110010"},
]


@pytest.fixture
def pool():
    return Pool.from_dicts(ROWS, id="name")


def write(tmp_path, text: str | bytes, name: str = "table.csv"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


# Encoding


def test_columns_are_typed_and_encoded(pool):
    assert pool.columns == {
        "solvent": "categorical",
        "dose": "continuous",
        "steps": "integer",
        "dry": "boolean",
        "print": "bits",
    }
    assert [(f.name, f.kind, f.start, f.stop) for f in pool.features] == [
        ("dose", "numeric", 0, 1),
        ("steps", "numeric", 1, 2),
        ("solvent", "categorical", 2, 3),
        ("dry", "categorical", 3, 4),
        ("print", "bits", 4, 5),
    ]
    bits = [[int(bit) for bit in row["print"]] for row in ROWS]
    np.testing.assert_array_equal(pool.X[:, :4], [[0, 0, 1, 1], [0.5, 1, 0, 0], [1, 0.5, 1, 1]])
    np.testing.assert_array_equal(unpack(pool.X[:, 4:], 8), bits)
    assert pool.features[4].n_bits == 8
    assert pool.features[0] == Feature(
        "dose", "numeric", 0, 1, "continuous", low=1.0, high=3.0, named=True
    )
    assert pool.features[2].levels == ("ethanol", "water")
    assert pool.X.dtype == np.float64
    assert pool.X.flags.c_contiguous
    assert not any(array.flags.writeable for array in (pool.X, pool.arm_of, pool.ids))
    assert pool.names == ("solvent", "dose", "steps", "dry", "print")
    assert len(pool) == 3


def test_numbers_that_are_more_even_in_logarithms_are_logarithmic():
    pool = Pool.from_array([[1e-3, 1, 1.0, 0.0], [1e-1, 1000, 3.0, 5e5], [10.0, 10, 5.0, 1e6]])
    assert list(pool.columns.values()) == ["log", "log", "continuous", "continuous"]
    np.testing.assert_allclose(pool.X[:, 0], [0, 0.5, 1])
    powers = np.array([[16], [32], [64], [128], [256], [512]])
    assert Pool.from_array(powers).columns == {"x0": "log"}
    assert Pool.from_array(np.arange(1, 9)[:, None]).columns == {"x0": "integer"}
    # Two levels are 0 and 1 on either scale.
    assert Pool.from_array(np.array([[1], [100]])).columns == {"x0": "integer"}


@pytest.mark.parametrize("n", [50, 5_000, 100_000])
def test_numbers_spread_evenly_are_not_logarithmic(n):
    rng = np.random.default_rng(0)
    table = {
        "even": rng.random(n),
        "whole": rng.integers(1, 1001, n),
        "decades": 10.0 ** rng.uniform(-3, 1, n),
    }
    assert Pool.from_frame(pl.DataFrame(table)).columns == {
        "even": "continuous",
        "whole": "integer",
        "decades": "log",
    }


@pytest.mark.parametrize(
    "values",
    [
        [-1.7e308, 0.0, 1.7e308],
        [0.0, 2.5e-324, 5e-324],
        [2**62, 2**62 + 1, 2**62 + 2],
        [-(2**63), -1, 2**63 - 1],
        [2**64 - 3, 2**64 - 2, 2**64 - 1],
        [2**53, 2**53 + 1, 2**53 + 2],
    ],
)
def test_scaling_is_exact_at_the_ends_of_the_range(values):
    pool = Pool.from_array(np.array(values)[:, None])
    assert pool.X[0, 0] == 0
    assert pool.X[-1, 0] == 1
    assert ((pool.X >= 0) & (pool.X <= 1)).all()
    if values[0] == 2**62:
        assert pool.X[1, 0] == 0.5


def test_declared_types_overrule():
    rows = [
        {
            "size": "S",
            "day": 3,
            "flag": "yes",
            "level": 2.0,
            "code": 7,
            "dose": 5.0,
            "note": "x",
            "n": "4",
        },
        {
            "size": "L",
            "day": 1,
            "flag": "no",
            "level": 8.0,
            "code": 9,
            "dose": 50.0,
            "note": "y",
            "n": "8",
        },
        {
            "size": "M",
            "day": 9,
            "flag": "no",
            "level": 4.0,
            "code": 7,
            "dose": 500.0,
            "note": "z",
            "n": "5",
        },
    ]
    columns = {
        "size": ["S", "M", "L"],
        "day": "ordered",
        "flag": "boolean",
        "level": "integer",
        "code": "categorical",
        "dose": "log",
        "note": "ignore",
        "n": "continuous",
    }
    pool = Pool.from_dicts(rows, columns=columns)
    assert pool.columns == columns | {"size": "ordered"}
    expected = {
        "size": [0, 1, 0.5],
        "day": [0.5, 0, 1],
        "level": [0, 1, 1 / 3],
        "dose": [0, 0.5, 1],
        "n": [0, 1, 0.25],
        "flag": [1, 0, 0],
        "code": [0, 1, 0],
    }
    assert [feature.name for feature in pool.features] == list(expected)
    np.testing.assert_allclose(pool.X, np.transpose(list(expected.values())), atol=1e-15)
    assert {feature.name: feature.levels for feature in pool.features}["size"] == ("S", "M", "L")
    # What was declared to be numbers comes back as such.
    assert [pool.row(i) for i in range(3)] == [{**row, "n": int(row["n"])} for row in rows]


def test_numbers_can_be_levels():
    frame = pl.DataFrame({"a": [1.0, 4.0, 2.0], "b": ["1", "10+", "2"]})
    pool = Pool.from_frame(frame, columns={"a": [4, 2, 1], "b": ["1", "2", "10+"]})
    np.testing.assert_array_equal(pool.X, [[1, 0], [0, 1], [0.5, 0.5]])
    assert Pool.from_array([[1], [2]], columns={"x0": ["1", "2"]}).X.tolist() == [[0], [1]]
    assert Pool.from_array([[1], [2]], columns={"x0": np.array([1, 2, 3])}).X.tolist() == [
        [0],
        [0.5],
    ]


def test_booleans_are_recognised_in_many_spellings():
    frame = pl.DataFrame(
        {
            "a": [1, 0, 1],
            "b": ["Yes", "no", "Y"],
            "c": [0.0, 1.0, 1.0],
            "d": ["True", "False", "False"],
        }
    )
    pool = Pool.from_frame(frame, columns=dict.fromkeys("abc", "boolean"))
    assert set(pool.columns.values()) == {"boolean"}
    np.testing.assert_array_equal(pool.X, [[1, 1, 0, 1], [0, 0, 1, 0], [1, 1, 1, 0]])


def test_strings_are_categories_where_they_repeat_or_are_few():
    words = [f"word {i}" for i in range(51)]
    assert Pool.from_dicts([{"w": w} for w in words[:50]]).columns == {"w": "categorical"}
    mixed = Pool.from_dicts([{"w": w, "x": i} for i, w in enumerate(words)])
    assert mixed.columns == {"w": "text", "x": "integer"}
    assert [row["w"] for row in mixed.rows(mixed.ids)] == words
    assert mixed.X.shape == (51, 1)
    rows = [{"w": w, "x": x} for w in words for x in range(2)]
    assert Pool.from_dicts(rows).columns == {"w": "categorical", "x": "integer"}
    assert mixed.row(50) == {"w": "word 50", "x": 50}


@pytest.mark.parametrize(
    "prints",
    [
        [[0, 1, 1], [1, 0, 1]],
        [(False, True, True), (True, False, True)],
        [np.array([0, 1, 1]), np.array([1, 0, 1])],
        [[0.0, 1.0, 1.0], [1.0, 0.0, 1.0]],
    ],
)
def test_lists_of_zeros_and_ones_are_bits(prints):
    pool = Pool.from_dicts([{"print": p} for p in prints])
    assert pool.columns == {"print": "bits"}
    np.testing.assert_array_equal(unpack(pool.X, 3), [[0, 1, 1], [1, 0, 1]])
    assert pool.row(0) == {"print": [0, 1, 1]}


def test_short_strings_of_bits_are_declared():
    rows = [{"p": "011"}, {"p": "101"}, {"p": "001"}]
    assert Pool.from_dicts(rows).columns == {"p": "categorical"}
    bits = [[0, 1, 1], [1, 0, 1], [0, 0, 1]]
    np.testing.assert_array_equal(unpack(Pool.from_dicts(rows, columns={"p": "bits"}).X, 3), bits)
    texts = pl.Series([row["p"] for row in rows])
    blocks = list(Bits.fit(texts, "p", str).decoded(texts, str, entries=4))  # a row at a time
    assert [start for start, _ in blocks] == [0, 1, 2]
    np.testing.assert_array_equal(np.concatenate([block for _, block in blocks]), bits)


def test_columns_of_one_value_are_kept_and_not_encoded():
    rows = [
        {"a": 1, "t": 20.5, "s": "same", "p": "01010101", "l": [0, 1], "b": True},
        {"a": 2, "t": 20.5, "s": "same"},
    ]
    rows[1] |= {"p": "01010101", "l": [0, 1], "b": True}
    pool = Pool.from_dicts(rows)
    assert pool.columns == {"a": "integer"} | dict.fromkeys("tsplb", "ignore")
    assert pool.X.tolist() == [[0], [1]]
    assert [pool.row(i) for i in (0, 1)] == rows
    declared = Pool.from_dicts(rows, columns={"t": "continuous", "s": "categorical"})
    assert declared.X.tolist() == [[0, 0, 0], [1, 0, 0]]


def test_one_row_is_a_pool():
    pool = Pool.from_dicts(ROWS[:1], id="name")
    assert pool.X.shape == (1, 5)
    assert pool.row("a") == {key: value for key, value in ROWS[0].items() if key != "name"}
    bigger = pool.add(ROWS[1:])
    np.testing.assert_array_equal(bigger.X[:1], pool.X)
    assert len(bigger.X) == 3


def test_a_pool_of_equal_rows_has_one_arm():
    pool = Pool.from_array(np.ones((4, 2)))
    assert pool.X.shape == (1, 2)
    assert pool.members(0).tolist() == [0, 1, 2, 3]


# Duplicates


def test_duplicates_share_an_arm_and_keep_their_ids():
    pool = Pool.from_array([[1, 5], [2, 5], [1, 5], [1, 6]], ids=["p", "q", "r", "s"])
    assert pool.arm_of.tolist() == [0, 1, 0, 2]
    assert [pool.members(arm).tolist() for arm in range(3)] == [[0, 2], [1], [3]]
    assert pool.ids.tolist() == ["p", "q", "r", "s"]
    assert "4 candidates (3 distinct)" in repr(pool)
    for arm in (3, -1, True, 1.0, "p"):
        with pytest.raises(UnknownArmError, match="from 0 to 2"):
            pool.members(arm)


def test_zeros_of_both_signs_are_one():
    assert len(Pool.from_array([[0.0, 1.0], [-0.0, 1.0], [3.0, 2.0]]).X) == 2


def test_colliding_hashes_do_not_merge_arms():
    X = np.random.default_rng(0).integers(0, 3, (200, 3)).astype(float)
    first, of = group(X, hashes=np.zeros(200, np.uint64))
    expected_first, expected_of = group(X)
    np.testing.assert_array_equal(first, expected_first)
    np.testing.assert_array_equal(of, expected_of)
    np.testing.assert_array_equal(Pool.from_array(X).arm_of, of)


# Ids


def test_ids_are_found_singly_and_together(pool):
    assert pool.positions("b").tolist() == [1]
    assert pool.positions(["c", "a", "c"]).tolist() == [2, 0, 2]
    assert pool.positions(np.array(["c", "a"])).tolist() == [2, 0]
    assert pool.positions(pd.Series(["b"])).dtype == np.intp
    assert pool.positions([]).tolist() == []
    assert [row["dose"] for row in pool.rows(["c", "a"])] == [3.0, 1.0]


@pytest.mark.parametrize("ids", [None, [10, 20, 30], [30, -5, 2**62]])
def test_whole_numbers_are_ids(ids):
    pool = Pool.from_array([[1.0], [2.0], [3.0]], ids=ids)
    held = [0, 1, 2] if ids is None else ids
    assert pool.ids.dtype == np.int64
    assert pool.positions(held[::-1]).tolist() == [2, 1, 0]
    for kind in (int, np.int64, np.array, np.uint64 if min(held) >= 0 else int):
        assert pool.positions(kind(held[2])).tolist() == [2]
    assert pool.positions(np.array(held, dtype=object)).tolist() == [0, 1, 2]
    assert pool.positions([]).tolist() == []


@pytest.mark.parametrize(
    ("ids", "asked", "words"),
    [
        (["alpha", "beta"], "alhpa", ["'alhpa'", "did you mean 'alpha'"]),
        (["alpha", "beta"], "zzzzzz", ["'zzzzzz'", "such as 'alpha'"]),
        (["1", "2"], 2, ["strings", "int", "did you mean '2'"]),
        (["1", "2"], np.int64(3), ["strings", "int64", "such as '1'"]),
        (["1", "2"], None, ["strings", "NoneType"]),
        ([1, 2], "2", ["whole numbers", "str", "did you mean 2?"]),
        ([1, 2], "x", ["whole numbers", "'x'", "such as 1"]),
        ([1, 2], 2.0, ["whole numbers", "float", "did you mean 2?"]),
        ([1, 2], 2.5, ["whole numbers", "2.5"]),
        ([1, 2], True, ["whole numbers", "bool"]),
        ([1, 2], 3, ["no candidate", "3", "such as 1"]),
        ([1, 2], 2**70, ["no candidate", str(2**70)]),
        ([1, 2], [1, 9], ["no candidate", "9"]),
        ([1, 2], np.array([0]), ["no candidate", "id 0"]),
        (None, -1, ["no candidate", "-1"]),
    ],
)
def test_unknown_ids_are_named(ids, asked, words):
    pool = Pool.from_array([[1.0], [2.0]], ids=ids)
    with pytest.raises(UnknownArmError) as caught:
        pool.positions(asked)
    assert all(word in str(caught.value) for word in words), caught.value


def test_a_close_id_is_found_among_many():
    pool = Pool.from_array(
        np.arange(20_000.0)[:, None], ids=[f"compound-{i:05}" for i in range(20_000)]
    )
    with pytest.raises(UnknownArmError, match="did you mean 'compound-12300'"):
        pool.row("compund-12300")
    with pytest.raises(UnknownArmError, match="such as 'compound-00000'"):
        pool.row("?")


def test_row_takes_one_id(pool):
    with pytest.raises(UnknownArmError, match="one id, got 2"):
        pool.row(["a", "b"])


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        (["x", "y", "x"], ["unique", "'x'", "rows 0, 2"]),
        ([1, 1, 1], ["unique", "1", "rows 0, 1, 2"]),
        (["x", None, "z"], ["needs an id", "row 1"]),
        ([1.5, 2.5, 3.5], ["strings or whole numbers", "Float64"]),
        ([True, False, True], ["strings or whole numbers", "Boolean"]),
        ([None, None, None], ["strings or whole numbers", "fill"]),
        ([1, "a", 2], ["one type", "int, str"]),
        ([1, 2], ["each of the 3 rows", "got 2"]),
        ([2**63, 2, 3], ["64 bits", "make them strings"]),
    ],
)
def test_bad_ids_are_errors(ids, words):
    with pytest.raises(ArmsError) as caught:
        Pool.from_array([[1.0], [2.0], [3.0]], ids=ids)
    assert all(word in str(caught.value) for word in words), caught.value


# Sources


def arrow():
    return needs("dev", "pyarrow")


def of_dictionaries(columns):
    solvents = arrow().array(columns["solvent"]).dictionary_encode()
    return arrow().table(columns | {"solvent": solvents})


FRAMES = {
    "polars": pl.DataFrame,
    "lazy": pl.LazyFrame,
    "pandas": lambda columns: pd.DataFrame(columns, index=[7, 8, 9]),
    "pandas of objects": lambda columns: pd.DataFrame(columns).astype(
        {"name": object, "solvent": object}
    ),
    "pandas of categories": lambda columns: pd.DataFrame(columns).astype(
        {"name": "category", "solvent": "category"}
    ),
    "arrow": lambda columns: arrow().table(columns),
    "arrow of dictionaries": of_dictionaries,
}


@pytest.mark.parametrize("kind", FRAMES)
def test_every_frame_gives_the_same_pool(pool, kind):
    columns = {name: [row[name] for row in ROWS] for name in ROWS[0]}
    other = Pool.from_frame(FRAMES[kind](columns), id="name")
    np.testing.assert_array_equal(other.X, pool.X)
    assert other.ids.tolist() == pool.ids.tolist()
    assert other.columns == pool.columns
    assert other.features == pool.features
    assert other.rows(["c", "a", "b"]) == pool.rows(["c", "a", "b"])


def test_files_give_the_same_pool(pool, tmp_path):
    frame = pl.DataFrame(ROWS)
    frame.write_csv(tmp_path / "t.csv")
    frame.write_parquet(tmp_path / "t.parquet")
    for other in (
        Pool.from_csv(tmp_path / "t.csv", id="name"),
        Pool.from_parquet(str(tmp_path / "t.parquet"), id="name"),
    ):
        np.testing.assert_array_equal(other.X, pool.X)
        assert other.features == pool.features
        assert other.row("b") == pool.row("b")


LEVELS = ["low", "mid", "high"]


def arrow_of_levels():
    codes = arrow().array([2, 0, 1])
    levels = arrow().array(LEVELS)
    column = arrow().DictionaryArray.from_arrays(codes, levels, ordered=True)
    return arrow().table({"a": column})


@pytest.mark.parametrize(
    "make",
    [
        lambda: pl.DataFrame({"a": pl.Series(["high", "low", "mid"], dtype=pl.Enum(LEVELS))}),
        lambda: pd.DataFrame(
            {"a": pd.Categorical(["high", "low", "mid"], categories=LEVELS, ordered=True)}
        ),
        arrow_of_levels,
    ],
    ids=["polars", "pandas", "arrow"],
)
def test_ordered_columns_of_frames_are_ordered(make):
    frame = make()
    pool = Pool.from_frame(frame)
    assert pool.columns == {"a": "ordered"}
    assert pool.features[0].levels == tuple(LEVELS)
    assert pool.X.ravel().tolist() == [1, 0, 0.5]
    assert pool.row(0) == {"a": "high"}
    assert Pool.from_frame(frame, columns={"a": "categorical"}).X.ravel().tolist() == [0, 1, 2]
    assert Pool.from_frame(frame, columns={"a": "ordered"}).X.ravel().tolist() == [1, 0, 0.5]


def test_ordered_numbers_and_enums_in_files(tmp_path):
    frame = pd.DataFrame({"a": pd.Categorical([3, 1, 2], categories=[3, 2, 1], ordered=True)})
    assert Pool.from_frame(frame).X.ravel().tolist() == [0, 1, 0.5]
    enums = pl.DataFrame(
        {
            "a": pl.Series(["high", "low"], dtype=pl.Enum(LEVELS)),
            "b": pl.Series(["low"] * 2, dtype=pl.Enum(LEVELS)),
        }
    )
    enums.write_parquet(tmp_path / "t.parquet")
    assert Pool.from_parquet(tmp_path / "t.parquet").columns == {"a": "ordered", "b": "ignore"}


def test_pandas_without_column_names():
    assert Pool.from_frame(pd.DataFrame(np.eye(2))).names == ("0", "1")


def test_decimals_and_narrow_numbers():
    frame = pl.DataFrame(
        {
            "a": pl.Series(["1.5", "2.5"]).cast(pl.Decimal(10, 2)),
            "b": pl.Series([1, 2], dtype=pl.UInt8),
            "c": pl.Series([1, 2], dtype=pl.Float32),
            "d": pl.Series([2**100, 2**101], dtype=pl.Int128),
        }
    )
    pool = Pool.from_frame(frame)
    assert pool.X.tolist() == [[0] * 4, [1] * 4]
    assert pool.columns == {"a": "continuous", "b": "integer", "c": "continuous", "d": "integer"}


def test_csv_with_a_mark_quotes_and_numeric_ids(tmp_path):
    path = write(tmp_path, '\ufeffid,name,x\n17,"a, b",1\n3,"say ""hi""",2.5\n5,c,3\n\n')
    pool = Pool.from_csv(path, id="id")
    assert pool.ids.tolist() == [17, 3, 5]
    assert pool.ids.dtype == np.int64
    assert pool.row(17) == {"name": "a, b", "x": 1.0}
    assert pool.row(3) == {"name": 'say "hi"', "x": 2.5}
    assert pool.positions([5, 17]).tolist() == [2, 0]


def test_csv_ids_with_leading_zeros_stay_strings(tmp_path):
    pool = Pool.from_csv(write(tmp_path, "id,x\n007,1\n7,2\n"), id="id")
    assert pool.ids.tolist() == ["007", "7"]


def test_csv_bits_keep_their_leading_zeros(tmp_path):
    path = write(tmp_path, "short,long,x\n" + "".join(f"{i:08b},{i:040b},{i}\n" for i in range(9)))
    pool = Pool.from_csv(path)
    assert pool.columns == {"short": "bits", "long": "bits", "x": "integer"}
    assert pool.row(3) == {"short": "00000011", "long": f"{3:040b}", "x": 3}
    declared = Pool.from_csv(write(tmp_path, "b\n011\n001\n"), columns={"b": "bits"})
    assert unpack(declared.X, 3).tolist() == [[0, 1, 1], [0, 0, 1]]


def test_csv_numbers_that_look_like_bits_at_first(tmp_path):
    whole = Pool.from_csv(write(tmp_path, "x\n" + "10000000\n" * 200 + "20000000\n"))
    assert whole.columns == {"x": "integer"}
    assert whole.row(200) == {"x": 20_000_000}
    assert Pool.from_csv(write(tmp_path, "x\n10000000\n11000000\n")).columns == {"x": "integer"}
    real = Pool.from_csv(write(tmp_path, "x\n" + "10000000\n" * 200 + "0.5\n"))
    assert real.columns == {"x": "continuous"}


def test_csv_types_are_those_of_all_rows(tmp_path):
    pool = Pool.from_csv(
        write(tmp_path, "x,y\n" + "1,2\n" * 500 + "2.5,nan\n"), columns={"y": "ignore"}
    )
    assert (pool.columns, len(pool)) == ({"x": "continuous", "y": "ignore"}, 501)
    assert pool.row(0) == {"x": 1.0, "y": "2"}
    assert len(Pool.from_csv(tmp_path / "table.csv", missing="drop")) == 500
    with pytest.raises(ArmsError, match=r"'y' misses a value in row 502"):
        Pool.from_csv(tmp_path / "table.csv")


def test_csv_rows_far_down_change_the_types(tmp_path):
    start = "x,y,z\n" + "1,2,\n" * 20_000
    pool = Pool.from_csv(write(tmp_path, start + "2.5,1,1\n"), columns={"z": "ignore"})
    assert pool.columns == {"x": "continuous", "y": "integer", "z": "ignore"}
    with pytest.raises(ArmsError, match="cannot read"):
        Pool.from_csv(write(tmp_path, start + "1,2,3,4\n"))
    with pytest.raises(ArmsError, match="'z' misses a value in row 2"):
        Pool.from_csv(write(tmp_path, start + "1,2,3\n"))
    late = Pool.from_csv(write(tmp_path, start + "1,2,3\n1,2,4\n"), missing="drop")
    assert late.columns["z"] == "integer"


def test_csv_words_for_missing_numbers_can_be_categories(tmp_path):
    path = write(tmp_path, "x,y\n1,1\nNA,2\n2,3\n")
    with pytest.raises(ArmsError, match="'x' misses a value in row 3"):
        Pool.from_csv(path)
    assert Pool.from_csv(path, columns={"x": "categorical"}).features[1].levels == ("1", "2", "NA")


def test_array_options():
    pool = Pool.from_array(
        np.float32([[1, 2], [3, 4]]), names=["a", "b"], columns={"b": "categorical"}
    )
    assert pool.columns == {"a": "continuous", "b": "categorical"}
    assert pool.row(1) == {"a": 3.0, "b": 4.0}
    assert Pool.from_array(np.array([[True], [False]])).columns == {"x0": "boolean"}
    assert len(Pool.from_array(np.float16([[1.5], [2.5]]))) == 2


def test_dicts_of_numpy_and_mixed_numbers():
    rows = [
        {"a": np.int64(1), "b": np.bool_(True), "c": np.str_("x"), "d": 1},
        {"a": 2, "b": False, "c": "y", "d": 2.5},
    ]
    pool = Pool.from_dicts(iter(rows))
    assert pool.columns == {"a": "integer", "b": "boolean", "c": "categorical", "d": "continuous"}
    assert pool.rows([0, 1]) == rows


def test_repr(pool):
    assert (
        repr(pool)
        == "Pool(3 candidates, 5 columns: 1 continuous, 1 integer, 1 boolean, 1 categorical, 1 bits)"
    )
    many = Pool.from_array(np.column_stack([np.arange(62_208.0), np.zeros(62_208)]))
    assert repr(many) == "Pool(62,208 candidates, 2 columns: 1 continuous, 1 ignored)"
    assert repr(Pool.from_array([[1.0]])) == "Pool(1 candidate, 1 column: 1 continuous)"


# Missing values


@pytest.mark.parametrize("absent", [None, float("nan")])
def test_missing_values_are_errors_or_dropped(absent):
    rows = [
        {"id": "a", "x": 1.0, "s": "p"},
        {"id": "b", "x": absent, "s": "q"},
        {"id": "c", "x": 3.0, "s": absent},
    ]
    rows += [{"id": "d", "x": 2.0, "s": "p"}]
    with pytest.raises(ArmsError, match=r"'x' misses a value in row 1 \(id 'b'\).*drop"):
        Pool.from_dicts(rows, id="id")
    pool = Pool.from_dicts(rows, id="id", missing="drop")
    assert pool.ids.tolist() == ["a", "d"]
    numbered = Pool.from_dicts(rows, missing="drop", columns={"id": "ignore"})
    assert numbered.ids.tolist() == [0, 3]
    assert numbered.row(3) == {"id": "d", "x": 2.0, "s": "p"}
    assert numbered.add([{"id": "e", "x": 5.0, "s": "p"}]).ids.tolist() == [0, 3, 4]
    with pytest.raises(ArmsError, match=r"'x' misses a value in row 1.*continuous"):
        Pool.from_dicts(rows, id="id", missing="category")
    ignored = Pool.from_dicts(rows, id="id", missing="category", columns={"x": "ignore"})
    assert ignored.features[0].levels == ("p", "q", None)
    assert ignored.X.ravel().tolist() == [0, 1, 2]
    assert ignored.arm_of.tolist() == [0, 1, 2, 0]


def test_missing_booleans_and_empty_columns_as_categories():
    rows = [
        {"b": True, "e": None, "x": 1},
        {"b": None, "e": None, "x": 1},
        {"b": True, "e": None, "x": 1},
    ]
    pool = Pool.from_dicts(rows, missing="category")
    assert pool.columns == {"b": "boolean", "e": "ignore", "x": "ignore"}
    assert pool.X.ravel().tolist() == [1, 2]
    assert pool.row(1) == rows[1]
    assert pool.add(rows[:1]).arm_of.tolist() == [0, 1, 0, 0]
    with pytest.raises(ArmsError, match="'e' is declared 'log' and holds no value"):
        Pool.from_dicts(rows, missing="category", columns={"e": "log"})


def test_rows_named_after_missing_ones_are_those_of_the_table():
    rows = [{"x": "1"}, {"x": None}, {"x": "bad"}]
    for missing in ("drop", "category"):
        with pytest.raises(ArmsError, match=r"'bad' in row 2"):
            Pool.from_dicts(rows, columns={"x": "continuous"}, missing=missing)


def test_a_missing_category_may_come_later():
    pool = Pool.from_dicts([{"s": "a"}, {"s": "b"}], missing="category")
    bigger = pool.add([{"s": None}, {"s": "c"}, {"s": "a"}])
    assert bigger.features[0].levels == ("a", "b", "c", None)
    assert bigger.X[bigger.arm_of].ravel().tolist() == [0, 1, 3, 2, 0]
    assert bigger.add([{"s": "d"}, {"s": None}]).X[:, 0].tolist() == [0, 1, 3, 2, 4]


def test_nothing_left_is_an_error():
    with pytest.raises(ArmsError, match=r"none is left.*'b' misses 2 of 2.*ignore"):
        Pool.from_dicts([{"a": 1, "b": None}, {"a": 2, "b": None}], missing="drop")


@pytest.mark.parametrize("value", [np.inf, -np.inf])
def test_infinity_is_an_error(value):
    for missing in ("error", "drop"):
        with pytest.raises(ArmsError, match=r"'x' must hold finite numbers, got -?inf in row 1"):
            Pool.from_dicts([{"x": 1.0}, {"x": value}], missing=missing)


# Errors


@pytest.mark.parametrize(
    ("rows", "columns", "words"),
    [
        ([{"x": "1"}, {"x": "two"}], {"x": "continuous"}, ["'x'", "numbers", "'two'", "row 1"]),
        ([{"x": 1.0}, {"x": 1.5}], {"x": "integer"}, ["'x'", "whole numbers", "1.5", "row 1"]),
        ([{"x": 1.0}, {"x": -2.0}], {"x": "log"}, ["'x'", "above 0", "-2.0", "row 1"]),
        ([{"x": 1}, {"x": 2}], {"x": "boolean"}, ["'x'", "booleans", "2", "row 1"]),
        ([{"x": "yes"}, {"x": "maybe"}], {"x": "boolean"}, ["'x'", "booleans", "'maybe'", "row 1"]),
        (
            [{"x": "S"}, {"x": "XL"}],
            {"x": ["S", "M"]},
            ["'x'", "levels ['S', 'M']", "'XL'", "row 1"],
        ),
        ([{"x": 1.5}, {"x": 1}], {"x": [1, 2]}, ["'x'", "levels [1, 2]", "1.5", "row 0"]),
        ([{"x": "0110"}, {"x": "01"}], {"x": "bits"}, ["'x'", "4 of them", "'01'", "row 1"]),
        ([{"x": "0110"}, {"x": "01é"}], {"x": "bits"}, ["'x'", "0 and 1", "row 1"]),
        ([{"x": ""}, {"x": ""}], {"x": "bits"}, ["'x'", "at least one bit"]),
        ([{"x": [0, 1]}, {"x": [1]}], None, ["'x'", "2 of them", "[1]", "row 1"]),
        ([{"x": [0, 1]}, {"x": [0, 2]}], None, ["'x'", "0 and 1", "[0, 2]", "row 1"]),
        ([{"x": [0, 1]}, {"x": [0, None]}], None, ["'x'", "0 and 1", "[0, None]", "row 1"]),
        ([{"x": ["a", "b"]}, {"x": ["c", "d"]}], None, ["'x'", "0 and 1", "row 0"]),
        ([{"x": [0.5] * 99}], None, ["'x'", "…", "columns of their own"]),
        ([{"x": [0, 1]}], {"x": "categorical"}, ["'x'", "List", "cannot be categorical"]),
        ([{"x": [0, 1]}], {"x": "continuous"}, ["'x'", "List", "numbers"]),
        ([{"x": {"y": 1}}], None, ["'x'", "Object", "ignore"]),
        ([{"x": object()}], None, ["'x'", "Object", "ignore"]),
        ([{"x": datetime.date(2024, 1, 1)}], None, ["'x'", "dates", "2024-01-01", "number"]),
        ([{"x": datetime.datetime(2024, 1, 1)}], {"x": "continuous"}, ["'x'", "dates", "number"]),
        ([{"x": datetime.timedelta(1)}], {"x": "boolean"}, ["'x'", "booleans", "Duration"]),
        (
            [{"x": "2024-01-01"}, {"x": "2024-02-01T12:00"}],
            None,
            ["'x'", "dates", "2024-01-01", "categorical"],
        ),
        (
            [{"x": str(i)} for i in range(99)] + [{"x": "oops"}],
            None,
            ["'x'", "must hold numbers", "'oops' in row 99", "number:oops="],
        ),
        (
            [{"x": str(i)} for i in range(99)],
            None,
            ["'x'", "seems to hold numbers", "'0'", "continuous"],
        ),
        ([{"x": f"C{i}"} for i in range(99)], None, ["only text", "'x'", "smiles", "categorical"]),
        ([{"x": "C"}], {"x": "text"}, ["only text", "'x'"]),
        ([{"x": "C", "y": 1}, {"x": "N", "y": 1}], {"x": "text"}, ["only text", "'x'"]),
        ([{"x": "C"}], {"x": "ignore"}, ["needs features", "'x'"]),
        ([{"x": 1}, {"x": "a"}], None, ["'x'", "one type", "int, str"]),
        ([{"x": True}, {"x": 2}], None, ["'x'", "one type", "bool, int"]),
        ([], None, ["at least one"]),
        ([{}], None, ["at least one column"]),
        ([3], None, ["dicts"]),
        (3, None, ["dicts", "int"]),
        ([{3: 1}], None, ["keys", "3"]),
    ],
)
def test_tables_that_cannot_be_used(rows, columns, words):
    with pytest.raises(ArmsError) as caught:
        Pool.from_dicts(rows, columns=columns)
    assert all(word in str(caught.value) for word in words), caught.value


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"columns": {"y": "log"}}, ["'y'", "'x', 'z'"]),
        ({"columns": {"x": "logarithmic"}}, ["'logarithmic'", "continuous, log", "levels"]),
        ({"columns": {"x": 3}}, ["3", "continuous, log"]),
        ({"columns": {"x": ["a", "a"]}}, ["distinct levels"]),
        ({"columns": {"x": []}}, ["distinct levels"]),
        ({"columns": {"x": ["a", 1]}}, ["all strings or all numbers"]),
        ({"columns": ["x"]}, ["map names to types"]),
        ({"columns": {"z": "ordered"}}, ["list its levels", "['a', 'b']"]),
        ({"id": "w"}, ["'w'", "'x', 'z'"]),
        ({"id": "x", "columns": {"x": "log"}}, ["'x'", "'z'"]),
        ({"missing": "ignore"}, ["error, drop, category", "'ignore'"]),
    ],
)
def test_settings_out_of_range(options, words):
    with pytest.raises(ParameterError) as caught:
        Pool.from_dicts([{"x": 1, "z": "a"}, {"x": 2, "z": "b"}], **options)
    assert all(word in str(caught.value) for word in words), caught.value


@pytest.mark.parametrize(
    ("X", "words"),
    [
        ([1.0, 2.0], ["shape", "reshape"]),
        ([["a"]], ["real numbers"]),
        ([[1.0], [2.0, 3.0]], ["rectangular"]),
        (np.ma.masked_array([[1.0]], mask=[[True]]), ["real numbers"]),
        (np.empty((0, 2)), ["at least one candidate"]),
        (np.empty((2, 0)), ["at least one column"]),
        ([[1.0, 2.0], [1.0, np.nan]], ["'x1'", "row 1"]),
    ],
)
def test_arrays_that_cannot_be_used(X, words):
    with pytest.raises(ArmsError) as caught:
        Pool.from_array(X)
    assert all(word in str(caught.value) for word in words), caught.value


@pytest.mark.parametrize("names", [["a"], ["a", "a"], [1, 2]])
def test_names_of_arrays(names):
    with pytest.raises(ParameterError, match="2 different strings"):
        Pool.from_array([[1.0, 2.0]], names=names)


@pytest.mark.parametrize(
    "frame",
    [3, {"a": [1]}, pd.DataFrame({"a": [1, "x"]}), pd.DataFrame(np.eye(2), columns=["a", "a"])],
    ids=lambda x: type(x).__name__,
)
def test_frames_that_cannot_be_read(frame):
    with pytest.raises(ArmsError, match=r"cannot read a table|values of one type"):
        Pool.from_frame(frame)


def test_files_that_cannot_be_read(tmp_path):
    for path in (tmp_path / "missing.csv", tmp_path):
        for read in (Pool.from_csv, Pool.from_parquet):
            with pytest.raises(ArmsError, match="no file"):
                read(path)
    pl.DataFrame({"a": [1]}).write_parquet(tmp_path / "t.parquet")
    for content in (
        b"",
        b"a,b\n1,2,3\n",
        bytes(range(128, 256)),
        (tmp_path / "t.parquet").read_bytes(),
    ):
        with pytest.raises(ArmsError, match="cannot read"):
            Pool.from_csv(write(tmp_path, content))
    with pytest.raises(ArmsError, match="cannot read"):
        Pool.from_parquet(write(tmp_path, "a,b\n1,2\n"))
    with pytest.raises(ParameterError, match="decimal"):
        Pool.from_csv(write(tmp_path, "a;b\n1;2\n"), decimal=";")
    with pytest.raises(ArmsError, match="'a' twice"):
        Pool.from_csv(write(tmp_path, "a,a\n1,2\n"))
    with pytest.raises(ArmsError, match="at least one candidate"):
        Pool.from_csv(write(tmp_path, "a,b\n"))
    with pytest.raises(ArmsError, match=r"'b' must hold numbers, got 'x' in row 3 \(id 9\);"):
        Pool.from_csv(write(tmp_path, "a,b\n8,2\n9,x\n"), id="a", columns={"b": "continuous"})


@pytest.mark.parametrize("mark", ";\t|,")
@pytest.mark.parametrize("decimal", ".,")
def test_what_spreadsheets_write(tmp_path, mark, decimal):
    def number(text):
        return f'"{text}"' if mark == decimal else text

    rows = [
        ["name, first", "x", "n"],
        ["é;1", number(f"0{decimal}5"), "1"],
        ["b", number(f" -1{decimal}25"), "2"],
    ]
    quoted = [[f'"{cell}"' if j == 0 else cell for j, cell in enumerate(row)] for row in rows]
    text = "".join(mark.join(row) + "\r\n" for row in quoted)
    pool = Pool.from_csv(
        write(tmp_path, b"\xef\xbb\xbf" + text.encode()), id="name, first", decimal=decimal
    )
    assert list(pool.ids) == ["é;1", "b"]
    assert pool.rows(["é;1", "b"]) == [{"x": 0.5, "n": 1}, {"x": -1.25, "n": 2}]


def test_a_path_with_wildcards_is_one_file(tmp_path):
    assert len(Pool.from_csv(write(tmp_path, "a\n1\n2\n", "table[1]*.csv"))) == 2


# Adding


def check_extends(bigger: Pool, pool: Pool) -> None:
    """What was there stays, bit by bit."""
    n, arms = len(pool), len(pool.X)
    assert bigger.X[:arms].tobytes() == pool.X.tobytes()
    np.testing.assert_array_equal(bigger.arm_of[:n], pool.arm_of)
    np.testing.assert_array_equal(bigger.ids[:n], pool.ids)
    assert [(f.name, f.start, f.stop) for f in bigger.features] == [
        (f.name, f.start, f.stop) for f in pool.features
    ]
    for old, new in zip(pool.features, bigger.features, strict=True):
        assert new.levels[: len(old.levels)] == old.levels
    assert bigger.rows(list(pool.ids)) == pool.rows(list(pool.ids))


def test_adding_keeps_what_was_there(pool):
    new = [
        {
            "print": "00110011",
            "dry": True,
            "steps": 1,
            "dose": 1.0,
            "solvent": "water",
            "name": "d",
        },
        {
            "print": "00110011",
            "dry": False,
            "steps": 5,
            "dose": -1.0,
            "solvent": "acetone",
            "name": "e",
        },
    ]
    bigger = pool.add(new)
    check_extends(bigger, pool)
    assert bigger.arm_of.tolist() == [0, 1, 2, 0, 3]
    assert bigger.members(0).tolist() == [0, 3]
    assert bigger.X[3, :4].tolist() == [-1, 2, 2, 0]
    assert bigger.row("e") == {key: new[1][key] for key in bigger.names}
    assert list(bigger.row("e")) == list(bigger.names)
    assert bigger.positions(["e", "a"]).tolist() == [4, 0]
    assert len(pool) == 3
    assert pool.add(new[:1]).X is pool.X


@pytest.mark.parametrize("kind", ["polars", "pandas", "arrow", "dicts", "csv", "parquet"])
def test_every_kind_of_table_can_be_added(kind, tmp_path):
    rows = [{"s": "1", "x": 1.5}, {"s": "b", "x": 2.0}]
    new = {"x": [1, 2], "s": ["1", "2"]}
    pl.DataFrame(new).write_csv(tmp_path / "t.csv")
    pl.DataFrame(new).write_parquet(tmp_path / "t.parquet")
    tables = {
        "polars": pl.DataFrame(new),
        "pandas": pd.DataFrame(new),
        "arrow": arrow().table(new) if kind == "arrow" else None,
        "dicts": [{"x": 1, "s": "1"}, {"x": 2, "s": "2"}],
        "csv": tmp_path / "t.csv",
        "parquet": str(tmp_path / "t.parquet"),
    }
    pool = Pool.from_dicts(rows)
    bigger = pool.add(tables[kind])
    check_extends(bigger, pool)
    assert bigger.ids.tolist() == [0, 1, 2, 3]
    assert bigger.rows([3, 0, 2]) == [{"s": "2", "x": 2}, rows[0], {"s": "1", "x": 1}]
    assert bigger.features[1].levels == ("1", "b", "2")
    assert bigger.X.tolist() == [[0, 0], [1, 1], [-1, 0], [1, 2]]


def test_arrays_are_added_with_ids():
    pool = Pool.from_array([[1.0, 2.0], [3.0, 4.0]], ids=["a", "b"], names=["p", "q"])
    bigger = pool.add(np.array([[1.0, 2.0]]), ids=["c"])
    assert bigger.arm_of.tolist() == [0, 1, 0]
    assert bigger.row("c") == {"p": 1.0, "q": 2.0}
    with pytest.raises(ParameterError, match="ids"):
        pool.add(np.array([[1.0, 2.0]]))
    with pytest.raises(ParameterError, match="ids"):
        Pool.from_array([[1.0]]).add(np.array([[1.0]]), ids=[3])


def test_text_goes_on():
    pool = Pool.from_dicts([{"t": "p", "x": 1}, {"t": "q", "x": 2}], columns={"t": "text"})
    grown = pool.add([{"t": "r", "x": 3}])
    assert [row["t"] for row in grown.rows(grown.ids)] == ["p", "q", "r"]


def test_text_ids_that_look_like_numbers_in_an_added_csv(tmp_path):
    pool = Pool.from_csv(write(tmp_path, "id,x\na,1\n2,2\n"), id="id")
    assert pool.add(write(tmp_path, "id,x\n3,3\n")).ids.tolist() == ["a", "2", "3"]


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ([{"name": "d", "x": 1, "s": "a", "extra": 1}], ["unexpected 'extra'", "missing 'o'"]),
        ([{"name": "a", "x": 1, "s": "a", "k": 1, "o": "S"}], ["must be new", "(id 'a')"]),
        ([{"name": 4, "x": 1, "s": "a", "k": 1, "o": "S"}], ["are strings", "4"]),
        ([{"name": "d", "x": "?", "s": "a", "k": 1, "o": "S"}], ["'x'", "'?'", "row 0 (id 'd')"]),
        ([{"name": "d", "x": 0, "s": "a", "k": 1, "o": "S"}], ["'x'", "above 0", "row 0"]),
        ([{"name": "d", "x": None, "s": "a", "k": 1, "o": "S"}], ["'x'", "misses"]),
        (
            [{"name": "d", "x": 1, "s": "a", "k": 2, "o": "S"}],
            ["'k'", "was 1 in every row", "2", "row 0"],
        ),
        ([{"name": "d", "x": 1, "s": "a", "k": None, "o": "S"}], ["'k'", "was 1", "None"]),
        ([{"name": "d", "x": 1, "s": "a", "k": 1, "o": "XL"}], ["'o'", "levels", "'XL'"]),
        ([], ["missing"]),
    ],
)
def test_tables_that_cannot_be_added(table, words):
    rows = [
        {"name": "a", "x": 1, "s": "a", "k": 1, "o": "S"},
        {"name": "b", "x": 5000, "s": "b", "k": 1, "o": "L"},
        {"name": "c", "x": 70, "s": "b", "k": 1, "o": "L"},
    ]
    pool = Pool.from_dicts(rows, id="name", columns={"o": ["S", "L"]})
    with pytest.raises(ArmsError) as caught:
        pool.add(table)
    assert all(word in str(caught.value) for word in words), caught.value


def test_numbers_and_categories_of_another_type_in_an_added_table():
    pool = Pool.from_array([[1, 5], [2, 6]], columns={"x1": "categorical"})
    assert pool.add([{"x0": 1.0, "x1": 6.0}]).X[2].tolist() == [0, 1]
    with pytest.raises(ArmsError, match=r"'x0' must hold whole numbers, got 1.5 in row 0 \(id 2\)"):
        pool.add([{"x0": 1.5, "x1": 6}])
    with pytest.raises(ArmsError, match=r"'x1' held Int64.*6\.5"):
        pool.add([{"x0": 1, "x1": 6.5}])
    with pytest.raises(ArmsError, match=r"'x1' held Int64.*'six'"):
        pool.add([{"x0": 1, "x1": "six"}])
    with pytest.raises(ArmsError, match="too far"):
        Pool.from_array([[0.0], [5e-324]]).add(np.array([[1e300]]))


def test_a_dropped_row_in_an_added_table_leaves_its_number_out():
    pool = Pool.from_dicts([{"x": 1, "k": 1}, {"x": 2, "k": 1}], missing="drop")
    bigger = pool.add([{"x": None, "k": 1}, {"x": 3, "k": 1}, {"x": 3, "k": None}])
    assert bigger.ids.tolist() == [0, 1, 3]


# Properties

WORDS = st.text(string.ascii_letters + ' ,"é', max_size=5)
NUMBERS = st.floats(-1e300, 1e300) | st.integers(-3, 3).map(float)
ROUNDED = st.floats(-1e100, 1e100).map(lambda number: round(number, 3))


def tables(numbers):
    columns = {
        "real": numbers,
        "whole": st.integers(-(2**63), 2**63 - 1) | st.integers(0, 2),
        "flag": st.booleans(),
        "word": WORDS,
        "bits": st.lists(st.integers(0, 1), min_size=3, max_size=3),
    }
    return st.lists(st.fixed_dictionaries(columns), min_size=1, max_size=12)


FIXED = {
    "real": "continuous",
    "whole": "integer",
    "flag": "boolean",
    "word": "categorical",
    "bits": "bits",
}


@pytest.mark.slow
@given(tables(NUMBERS), st.sampled_from([{"word": "categorical"}, FIXED]))
def test_rows_come_back_and_equal_features_are_one_arm(rows, columns):
    pool = Pool.from_dicts(rows, columns=columns)
    assert [pool.row(i) for i in range(len(rows))] == rows
    assert np.isfinite(pool.X).all()
    assert len({row.tobytes() for row in pool.X}) == len(pool.X)
    assert sorted(set(pool.arm_of.tolist())) == list(range(len(pool.X)))
    for i, a in enumerate(rows):
        for j, b in enumerate(rows):
            if a == b:
                assert pool.arm_of[i] == pool.arm_of[j]
            elif any(a[name] != b[name] for name in ("flag", "word", "bits")):
                assert pool.arm_of[i] != pool.arm_of[j]
    for arm in range(len(pool.X)):
        assert pool.members(arm).tolist() == [i for i in range(len(rows)) if pool.arm_of[i] == arm]


@pytest.mark.slow
@given(tables(ROUNDED), tables(ROUNDED), tables(ROUNDED))
def test_adding_never_changes_what_was_there(first, second, third):
    pool = Pool.from_dicts(first, columns=FIXED)
    added = [pool.add(second), pool.add(second).add(third)]
    check_extends(added[0], pool)
    check_extends(added[1], added[0])
    rows = first + second + third
    assert added[1].rows(range(len(rows))) == rows
    features = added[1].X[added[1].arm_of]
    assert len(np.unique(features, axis=0)) == len(added[1].X)
    for name in ("word", "flag"):
        feature = next(feature for feature in added[1].features if feature.name == name)
        codes = features[:, feature.start].astype(int)
        assert [feature.levels[code] for code in codes] == [row[name] for row in rows]


@pytest.mark.slow
@given(tables(NUMBERS))
def test_csv_gives_back_what_was_written(rows):
    plain = [
        {name: row[name] for name in ("real", "whole", "flag", "word")} | {"id": f"r{i}"}
        for i, row in enumerate(rows)
    ]
    with tempfile.TemporaryDirectory() as folder:
        pl.DataFrame(plain).write_csv(Path(folder) / "t.csv", quote_style="non_numeric")
        pool = Pool.from_csv(
            Path(folder) / "t.csv", id="id", columns={"word": "categorical", "real": "continuous"}
        )
    assert pool.rows([row["id"] for row in plain]) == [
        {k: v for k, v in row.items() if k != "id"} for row in plain
    ]


@pytest.mark.slow
def test_many_rows(tmp_path):
    n, rng = 200_000, np.random.default_rng(0)
    frame = pl.DataFrame(
        {
            "id": [f"c{i}" for i in range(n)],
            "real": rng.normal(size=n).round(1),
            "log": 10.0 ** rng.integers(-5, 5, n),
            "whole": rng.integers(0, 4, n),
            "flag": rng.random(n) < 0.5,
            "word": rng.choice(list("abcdef"), n),
            "print": rng.choice(["00000000", "10101010", "11110000"], n),
            "smiles": [f"C{i}N" for i in range(n)],
        }
    )
    frame.write_csv(tmp_path / "t.csv")
    frame.write_parquet(tmp_path / "t.parquet")
    pools = [
        Pool.from_csv(tmp_path / "t.csv", id="id", columns={"smiles": "text"}),
        Pool.from_parquet(tmp_path / "t.parquet", id="id", columns={"smiles": "text"}),
    ]
    np.testing.assert_array_equal(pools[0].X, pools[1].X)
    np.testing.assert_array_equal(pools[0].arm_of, pools[1].arm_of)
    pool = pools[0]
    assert list(pool.columns.values()) == [
        "continuous",
        "log",
        "integer",
        "boolean",
        "categorical",
        "bits",
        "text",
    ]
    assert len(pool.X) == frame.n_unique(["real", "log", "whole", "flag", "word", "print"]) < n
    asked = rng.integers(0, n, 50)
    assert pool.rows([f"c{i}" for i in asked]) == frame.drop("id")[asked].to_dicts()
    assert pool.positions("c123456").tolist() == [123_456]


def test_a_pool_is_made_by_its_readers():
    with pytest.raises(ArmsError, match="from_array"):
        Pool(np.zeros((3, 2)))
