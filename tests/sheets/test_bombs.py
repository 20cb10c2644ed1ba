"""Small files that say that they hold more than any machine does: refused with a typed error, in little memory and
time."""

import resource
import time

import numpy as np
import polars as pl
import pytest
from soak import bombs

import manyarms as ma
from manyarms.space.stored import read_table, written_table

BOMBS = {
    "a cell far off.xlsx": lambda: bombs.workbook(bombs.TABLE + bombs.row(1048576, XFD="1")),
    "a cell less far off.xlsx": lambda: bombs.workbook(bombs.TABLE + bombs.row(100_000, ZZ="1")),
    "a long text.xlsx": lambda: bombs.workbook(bombs.SHARED, bombs.long_text(3 << 28)),
    "zeros.csv.gz": lambda: bombs.packed(1 << 28, b"\0"),
    "rows.csv.gz": lambda: bombs.packed(1 << 28, b"1,2\n"),
    "one line.csv": lambda: b"a," * 10_000_000,
    "one line below.csv": lambda: b"id,x\n" + b"a," * 10_000_000,
    "a quote.csv": lambda: b'id,"x\n' + b"," * 10_000_000,
    "empty lines.csv": lambda: b"\n" * 10_000_000,
    "a long number.csv": lambda: b"id,x\na,1\nb," + b"9" * 10_000_000,
    "constant.parquet": lambda: bombs.constant(100_000_000),
    "booleans.parquet": lambda: bombs.constant(60_000_000, True),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(BOMBS[name]())
    read = ma.Pool.from_parquet if name.endswith("parquet") else ma.Pool.from_csv
    before = used()
    with pytest.raises(ma.errors.ArmsError) as caught:
        read(path)
    assert used() - before < 10
    assert len(str(caught.value)) < 1000


def used() -> float:
    """Seconds of the processor, of this process and those that it has started."""
    child = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + child.ru_utime + child.ru_stime


@pytest.mark.parametrize("unit", ["", " g"])
def test_numbers_of_fifty_digits_are_numbers(tmp_path, unit):
    rows = [f"m{i},{'7' * 49}{i}{unit},{i}" for i in range(9)]
    (tmp_path / "table.csv").write_text("\n".join(["id,x,n", *rows]))
    pool = ma.Pool.from_csv(tmp_path / "table.csv", id="id")
    assert pool.rows(["m3"])[0]["x"] == pytest.approx(7e49 / 0.9, rel=1e-6)


@pytest.mark.parametrize("way", [0, 1, 6, 12, 16, 18])
def test_what_is_stored_comes_back_whatever_its_size(way):
    n = 2**way
    frame = pl.DataFrame({f"f{i}": pl.Series(range(n)) // 2**i % 2 for i in range(way)})
    texts = frame.select(pl.all().cast(pl.String), pl.lit("a").alias("same"))
    table = written_table(texts, np.arange(n))
    assert read_table(table).frame.equals(texts)


def test_a_stored_table_that_is_a_bomb_is_refused():
    for data in (bombs.constant(100_000_000), bombs.nested(200), b"PAR1", b""):
        with pytest.raises(ma.errors.ArmsError, match="a stored table cannot be read"):
            read_table(data)
