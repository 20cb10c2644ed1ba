"""Careless command lines around sheets: one line, exit code 2, and nothing is written."""

import shlex
import zipfile

import polars as pl
import pytest
import spreadsheets as sheets
from command_line import assert_one_line, manyarms, said
from extras import needs

import manyarms as ma
from manyarms.sheets.reading import write_workbook

GOOD = "name,base,t,yield\n" + "".join(
    f"r{i},{'abc'[i % 3]},{20 + 10 * (i % 5)},{i if i % 2 else ''}\n" for i in range(15)
)
FILES = {
    "good.csv": GOOD,
    "empty.csv": "",
    "blank.csv": "\n\n\n",
    "header.csv": "name,base,t,yield\n",
    "one.csv": "name\na\nb\n",
    "twice.csv": "name,x,x\na,1,2\n",
    "unnamed.csv": "name,x,\na,1,7\nb,2,8\n",
    "ragged.csv": "name,x\na,1,2\nb,3\n",
    "quote.csv": 'name,x\na,"1\nb,2\n',
    "same-id.csv": "name,x\na,1\na,2\n",
    "no-id.csv": "name,x\na,1\n,2\n",
    "holes.csv": "name,x,z\na,1,1\nb,,2\nc,3,3\nd,4,4\n",
    "all-holes.csv": "name,x,z\na,,1\nb,2,\n",
    "words.csv": "name,x\na,1\nb,2\nc,three\n",
    "rt.csv": "name,t\na,80 °C\nb,RT\nc,90 °C\n",
    "units.csv": "name,t\na,80 °C\nb,353 K\n",
    "case.csv": "name,s,x\na,DMF,1\nb,dmf,2\nc,DMF ,3\n",
    "dates.csv": "name,when\na,2024-05-01\nb,2024-05-02\n",
    "days.csv": "name,x\na,1\nb,2\n",
    "marks.csv": "name;x\na;0,5\nb;1.5\n",
    "unclear.csv": "name;x\na;1,200\nb;2,400\n",
    "loss.csv": "name,x,loss\na,1,0.5\nb,2,0.7\n",
    "value.csv": "name,x,value\na,1,\nb,2,\n",
    "two.csv": "name,x,yield,ee\na,1,5,90\nb,2,,\n",
    "half.csv": "name,x,titer\na,1,5\nb,2,\nc,3,\n",
    "good-yield.csv": "name,x,yield\na,1,good\nb,2,5\n",
    "less.csv": "name,x,yield\na,1,<5\nb,2,5\n",
    "different.csv": "name,x,yield\na,1,5\na,2,6\n",
    "texts.csv": "name,remark 2,x\n" + "".join(f"n{i},words {i},{i % 3}\n" for i in range(60)),
    "smiles.csv": "name,smiles\na,CCO\nb,C1CC\n",
    "bits.csv": "name,print\na,00000000\nb,000000\n",
    "factors.csv": "base;t\nx;1\nx;2\n",
    "no-factors.csv": "base;t\n",
    "add-known.csv": "name,base,t\nr1,a,20\n",
    "add-less.csv": "name,base\ns1,a\n",
    "add-more.csv": "name,base,t,plate\ns1,a,20,7\n",
    "add-text.csv": "name,base,t\ns1,a,warm\n",
    "add-unit.csv": "name,base,t\ns1,a,2.5\n",
    "add-hole.csv": "name,base,t\ns1,,20\n",
    "add-id.csv": "name,base,t\n,a,20\n",
    "add-same.csv": "name,base,t\ns1,a,20\ns1,a,30\n",
    "add-yield.csv": "name,base,t,yield\ns1,a,20,high\n",
    "add-empty.csv": "name,base,t\n",
    "copy.json": "{}",
    "page.html": "<html><body>no table</body></html>",
}
INIT = "init new.db --pool"
LINES = [
    line.strip()
    for line in f"""
init
init new.db
init new.db --maximize
init new.db --pool
{INIT} good.csv
{INIT} good.csv --maximize
{INIT} good.csv --maximize --id name
{INIT} good.csv --maximize --target
{INIT} good.csv --maximize --target Yield
{INIT} good.csv --maximize --target "yield (%)"
{INIT} good.csv --maximize --id name --target name
{INIT} good.csv --maximize --id nmae --target yield
{INIT} good.csv --maximize --id name --target base
{INIT} good.csv --maximize --id base --target yield
{INIT} good.csv --maximize --id t --target yield
{INIT} good.csv --maximize --id name --target yield --column yield=log
{INIT} good.csv --maximize --id name --target yield --column name=ignore
{INIT} good.csv --maximize --id name --target yield --column temp=number
{INIT} good.csv --maximize --id name --target yield --column base=number
{INIT} good.csv --maximize --id name --target yield --column base=number:a
{INIT} good.csv --maximize --id name --target yield --column base=number:a=one
{INIT} good.csv --maximize --id name --target yield --column base=number:a=1
{INIT} good.csv --maximize --id name --target yield --column base=categorical:split
{INIT} good.csv --maximize --id name --target yield --column base=smiles
{INIT} good.csv --maximize --id name --target yield --column base=smiles:names
{INIT} good.csv --maximize --id name --target yield --column base=a,b
{INIT} good.csv --maximize --id name --target yield --column base
{INIT} good.csv --maximize --id name --target yield --column =log
{INIT} good.csv --maximize --id name --target yield --column base=
{INIT} good.csv --maximize --id name --target yield --column t=bits
{INIT} good.csv --maximize --id name --target yield --column t=boolean
{INIT} good.csv --maximize --id name --target yield --column base=ordered
{INIT} good.csv --maximize --id name --target yield --column base=ignore --column t=ignore
{INIT} good.csv --maximize --id name --target yield --missing some
{INIT} good.csv --maximize --id name --target yield --decimal ;
{INIT} good.csv --maximize --id name --target yield --decimal ,.
{INIT} good.csv --maximize --id name --target yield --noise little
{INIT} good.csv --maximize --id name --target yield --noise -1
{INIT} good.csv --maximize --id name --target yield --bounds 0
{INIT} good.csv --maximize --id name --target yield --bounds 100 0
{INIT} good.csv --maximize --id name --target yield --kernel magic
{INIT} good.csv --maximize --id name --target yield --repeats often
{INIT} good.csv --maximize --id name --target yield --where "t > 20"
{INIT} good.csv --maximize --id name --target yield --exclude "t > 20"
{INIT} good.csv --maximize --id name --target yield t=1,2
{INIT} good.csv --maximize --id name --target yield --levels t=1,2
{INIT} good.csv --maximize --id name --target yield --box t=1:2
{INIT} good.csv --maximise --id name --target yield
init lab.db --pool good.csv --maximize --id name --target yield
init nowhere/new.db --pool good.csv --maximize --id name --target yield
{INIT} nothing.csv --maximize
{INIT} . --maximize
{INIT} lab.db --maximize
{INIT} copy.json --maximize
{INIT} page.html --maximize
{INIT} book.csv --maximize
{INIT} archive.csv --maximize
{INIT} parquet.csv --maximize
{INIT} text.xlsx --maximize
{INIT} text.xls --maximize
{INIT} text.parquet --maximize
{INIT} empty-book.xlsx --maximize
{INIT} random.csv --maximize
{INIT} odd.csv --maximize
{INIT} empty.csv --maximize
{INIT} blank.csv --maximize
{INIT} header.csv --maximize --id name
{INIT} one.csv --maximize --id name
{INIT} twice.csv --maximize --id name
{INIT} unnamed.csv --maximize --id name
{INIT} ragged.csv --maximize --id name
{INIT} quote.csv --maximize --id name
{INIT} same-id.csv --maximize --id name
{INIT} no-id.csv --maximize --id name
{INIT} holes.csv --maximize --id name
{INIT} holes.csv --maximize --id name --missing category
{INIT} all-holes.csv --maximize --id name --missing drop --column x=number --column z=number
{INIT} words.csv --maximize --id name
{INIT} words.csv --maximize --id name --column x=number
{INIT} rt.csv --maximize --id name
{INIT} rt.csv --maximize --id name --column t=number
{INIT} rt.csv --maximize --id name --column t=log:RT=-5
{INIT} units.csv --maximize --id name
{INIT} case.csv --maximize --id name
{INIT} dates.csv --maximize --id name
{INIT} marks.csv --maximize --id name
{INIT} unclear.csv --maximize --id name
{INIT} loss.csv --minimize --id name
{INIT} value.csv --maximize --id name
{INIT} two.csv --maximize --id name
{INIT} two.csv --maximize --id name --target yield
{INIT} half.csv --maximize --id name
{INIT} good-yield.csv --maximize --id name --target yield
{INIT} less.csv --maximize --id name --target yield
{INIT} different.csv --maximize --id name --target yield
{INIT} texts.csv --maximize --id name
{INIT} smiles.csv --maximize --id name --column smiles=smiles
{INIT} bits.csv --maximize --id name --column print=bits
{INIT} sheet.csv --maximize
{INIT} sheet.csv --maximize --id Nr --target "yield (%)"
{INIT} sheet.csv --maximize --id Nr --target "yield (%)" --column temperature=number:RT=25
{INIT} sheet.csv --maximize --id Nr --target "yield (%)" --decimal .
init t=1,2 --levels s=1,2 --maximize
init new.db --levels --maximize
init new.db --levels t --maximize
init new.db --levels t= --maximize
init new.db --levels =1,2 --maximize
init new.db --levels t=1,,2 --maximize
init new.db --levels t=1,2 t=3,4 --maximize
init new.db --levels t=1,1 --maximize
init new.db --levels t=60:120 --maximize
init new.db --levels t=60:120:0 --maximize
init new.db --levels t=120:60:20 --maximize
init new.db --levels t=60:120:-20 --maximize
init new.db --levels t=60:120:x --maximize
init new.db --levels t=0:1e9:0.001 --maximize
init new.db --levels a=0:99:1 b=0:99:1 c=0:99:1 d=0:99:1 e=0:99:1 --maximize
init new.db --levels t=1,2 --maximize --id t
init new.db --levels t=1,2 --maximize --target t
init new.db --levels t=1,2 --maximize --missing drop
init new.db --levels t=1,2 --maximize --column s=log
init new.db --levels t=1,2 --maximize --exclude "t > 0"
init new.db --levels t=1,2 --maximize --where "t > 2"
init new.db --levels t=1,2 --maximize --where "t = 2"
init new.db --levels t=1,2 --maximize --where "s == 2"
init new.db --levels s=x,y --maximize --where "s == 'z'"
init new.db --levels s=x,y --maximize --where "s == x"
init new.db --levels s=x,y --maximize --where "s > 1"
init new.db --levels s=x,y --maximize --where "__import__('os')"
init new.db --levels s=x,y --maximize --where "open('good.csv') == 1"
init new.db --levels s=x,y --maximize --where ""
init new.db --levels nothing.csv --maximize
init new.db --levels no-factors.csv --maximize
init new.db --levels factors.csv --maximize base=x,y
init new.db --box t=1:2 --maximize --target t
init new.db --box t=1:2 --maximize --exclude "t > 1"
init new.db --box t=1:2 --maximize s=1:2
add
add lab.db
add lab.db nothing.csv
add lab.db lab.db
add lab.db .
add nowhere.db add-known.csv
add lab.db add-known.csv
add lab.db add-less.csv
add lab.db add-more.csv
add lab.db add-text.csv
add lab.db add-unit.csv
add lab.db add-hole.csv
add lab.db add-id.csv
add lab.db add-same.csv
add lab.db add-yield.csv
add lab.db add-empty.csv
add lab.db empty.csv
add lab.db book.csv
add lab.db text.xlsx
add lab.db sheet.csv
add lab.db add-text.csv --decimal x
add lab.db add-known.csv --id name
columns
columns nowhere.db
columns good.csv
columns lab.db --column
columns lab.db --column t
columns lab.db --column temperature=number
columns lab.db --column base=number
columns lab.db --column base=bits
columns lab.db --column base=smiles
columns lab.db --column t=odd
columns lab.db --column yield=number
columns lab.db --column base=ignore --column t=ignore
columns lab.db t=log
columns box.db --column t=log
suggest lab.db -o next.xls
suggest lab.db -o next.ods
suggest lab.db -o good.csv
suggest lab.db -o nowhere/next.xlsx
history lab.db -o out.xlsm
tell lab.db text.xlsx
tell lab.db empty-book.xlsx
""".splitlines()
    if line.strip()
]


@pytest.fixture(scope="module")
def careless(tmp_path_factory):
    """A folder that none of the lines changes."""
    folder = tmp_path_factory.mktemp("careless")
    for name, text in FILES.items():
        (folder / name).write_text(text)
    sheets.write_messy_sheet(folder)
    with zipfile.ZipFile(folder / "archive.csv", "w") as archive:
        archive.writestr("t.csv", GOOD)
    pl.DataFrame({"name": ["a", "b"], "x": [1, 2]}).write_parquet(folder / "parquet.csv")
    for ending in ("xlsx", "xls", "parquet"):
        (folder / f"text.{ending}").write_text(GOOD)
    (folder / "random.csv").write_bytes(bytes(range(256)) * 40)
    (folder / "odd.csv").write_bytes(b"name,x\n\x81\x8d,1\n")
    good = ("--pool", folder / "good.csv", "--id", "name", "--target", "yield", "--maximize")
    manyarms("init", folder / "lab.db", *good)
    manyarms("init", folder / "box.db", "--box", "t=1:2", "--maximize")
    return folder


def write_books(folder):
    """The workbooks of some lines."""
    needs("excel", "xlsxwriter")
    needs("excel", "fastexcel")
    write_workbook(pl.DataFrame({"name": ["a", "b"], "x": [1, 2]}), folder / "book.csv")
    write_workbook(pl.DataFrame(), folder / "empty-book.xlsx")


def state(folder):
    """All files, and of studies how many events they have."""
    files = {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix != ".db"}
    studies = [path.name for path in folder.glob("*.db")]
    n_events = [ma.Study.open(folder / name).n_events for name in studies]
    return {name: each for name, each in files.items() if ".db-" not in name}, studies, n_events


@pytest.mark.parametrize("line", LINES)
def test_a_careless_line_writes_nothing(careless, line, monkeypatch):
    monkeypatch.chdir(careless)
    if "book" in line:
        write_books(careless)
    before = state(careless)
    answer = said(*shlex.split(line))
    assert answer.code == 2, answer
    assert_one_line(answer)
    assert len(answer.err) < 1000
    assert state(careless) == before


def test_there_are_more_than_a_hundred():
    assert len(set(LINES)) == len(LINES) > 150
