"""Careless command lines around results: one line, exit code 2, and the study is as it was."""

import shlex
import shutil

import polars as pl
import pytest
from command_line import assert_one_line, manyarms, said

import manyarms as ma

TABLE = "name,solvent,temperature\n" + "".join(
    f"{solvent}-{t},{solvent},{t}\n" for solvent in ("water", "DMF") for t in range(20, 120, 10)
)
FILES = {
    "text.csv": "name,value\nwater-20,50\nwater-30,much\n",
    "comma.csv": 'name,value\nwater-20,"50,5"\n',
    "percent.csv": "name,value\nwater-20,50 %\n",
    "thousands.csv": 'name,value\nwater-20,"1,200.5"\n',
    "nan.csv": "name,value\nwater-20,nan\n",
    "inf.csv": "name,value\nwater-20,1e999\n",
    "unknown.csv": "name,value\nwater-20,50\nwater-25,50\n",
    "no-id.csv": "value\n50\n",
    "no-value.csv": "name,yield\nwater-20,50\n",
    "no-name.csv": "name,value\nwater-20,50\n,60\n",
    "twice.csv": "name,value,value\nwater-20,50,60\n",
    "other.csv": "name,solvent,temperature,value\nwater-20,water,25,50\n",
    "swapped.csv": "name,solvent,temperature,value\nwater-20,water,20,50\nwater-30,DMF,30,60\n",
    "batch.csv": "name,batch,value\nwater-20,first,50\n",
    "batch2.csv": "name,batch,value\nwater-20,-3,50\n",
    "noise.csv": "name,value,noise\nwater-20,50,-1\n",
    "noise2.csv": "name,value,noise\nwater-20,50,little\n",
    "failed.csv": "name,value\nDMF-80,failed\n",
    "long-note.csv": f"name,value,note\nwater-20,50,{'x' * 3000}\n",
    "empty.csv": "",
    "header.csv": "name;value",
    "binary.csv": "name,value\nwater-20,\0\n",
    "ragged.csv": "name,value\nwater-20,50,60,70\n",
    "copy.json": "{}",
    "list.json": "[1, 2",
    "notes.txt": "it went well",
}
LINES = """
tell
tell lab.db
tell nowhere.db water-20 50
tell recipes.csv water-20 50
tell lab.db water-20
tell lab.db 50
tell lab.db 50 water-20
tell lab.db water-20 water-30
tell lab.db water-20 50 60
tell lab.db water-20 50 water-30 60
tell lab.db water-20=50
tell lab.db Water-20 50
tell lab.db "water 20" 50
tell lab.db water-20 ""
tell lab.db "" 50
tell lab.db water-20 "50 %"
tell lab.db water-20 "50 mg"
tell lab.db water-20 50,5
tell lab.db water-20 "1 2"
tell lab.db water-20 '=50+1'
tell lab.db water-20 >50
tell lab.db water-20 <50
tell lab.db water-20 ~50
tell lab.db water-20 n/a
tell lab.db water-20 none
tell lab.db water-20 -inf
tell lab.db water-20 1e400
tell lab.db water-20 50 --decimal ;
tell lab.db water-20 50 --noise ""--
tell lab.db water-20 50 --noise -0.1
tell lab.db water-20 50 --note
tell lab.db water-20 50 --repalce
tell lab.db water-20 50 --replace --again
tell lab.db water-20 50 --value value
tell lab.db DMF-80 failed
tell lab.db DMF-80 crashed
tell lab.db DMF-80 failed --replace
tell lab.db nowhere.csv
tell lab.db .
tell lab.db lab.db
tell lab.db text.csv
tell lab.db comma.csv
tell lab.db percent.csv
tell lab.db thousands.csv
tell lab.db nan.csv
tell lab.db inf.csv
tell lab.db unknown.csv
tell lab.db no-id.csv
tell lab.db no-value.csv
tell lab.db no-value.csv --value Yield
tell lab.db no-name.csv
tell lab.db other.csv
tell lab.db swapped.csv
tell lab.db batch.csv
tell lab.db batch2.csv
tell lab.db noise.csv
tell lab.db noise2.csv
tell lab.db failed.csv
tell lab.db long-note.csv
tell lab.db empty.csv
tell lab.db binary.csv
tell lab.db ragged.csv
tell lab.db notes.txt
tell lab.db copy.json
tell lab.db good.csv text.csv
tell lab.db good.csv nowhere.csv
tell lab.db good.csv 50
tell lab.db recipes.csv
tell lab.db recipes.csv --value solvent
tell lab.db good.csv --value temperature
tell lab.db good.csv --noise nothing
tell lab.db book.xlsx --value nothing
tell once.db a 2
tell once.db once.csv
correct
correct lab.db
correct lab.db DMF-80
correct nowhere.db DMF-80 50
correct lab.db nobody 50
correct lab.db water-20 50
correct lab.db DMF-80 much
correct lab.db DMF-80 50,5
correct lab.db DMF-80 nan
correct lab.db DMF-80 ""
correct lab.db DMF-80 50 60
correct lab.db DMF-80 50 --was 1234
correct lab.db DMF-80 50 --was much
correct lab.db DMF-80 50 --noise -1
correct lab.db DMF-80 50 --because typo
correct lab.db DMF-80 failed
correct lab.db DMF-90 50
correct lab.db DMF-90 50 --was 3
correct lab.db good.csv
correct lab.db good.csv 50
undo
undo nowhere.db
undo lab.db 0
undo lab.db -1
undo lab.db 1
undo lab.db 9999
undo lab.db last
undo lab.db 2.5
undo lab.db 2 3
undo lab.db water-20
undo recipes.csv
failed
failed lab.db
failed lab.db nobody
failed lab.db water-20 nobody
failed lab.db DMF-80
failed lab.db water-20 DMF-80
failed lab.db good.csv
failed lab.db water-20 --because empty
release
release lab.db
release lab.db nobody
release lab.db water-20
release lab.db DMF-80
release lab.db --all water-20
release lab.db --everything
retire lab.db
retire lab.db nobody
restore lab.db
restore lab.db nobody
restore lab.db water-20
suggest
suggest nowhere.db
suggest lab.db -n 0
suggest lab.db -n -1
suggest lab.db -n some
suggest lab.db -n 1e9
suggest lab.db 5
suggest lab.db -n
suggest lab.db -o
suggest lab.db -o recipes.csv
suggest lab.db -o nowhere/next.csv
suggest lab.db -o .
suggest lab.db --lease never
suggest lab.db --lease -1d
suggest lab.db --where
suggest lab.db --where ""
suggest lab.db --where temperature
suggest lab.db --where "temperature = 80"
suggest lab.db --where "temp == 80"
suggest lab.db --where "temperature == hot"
suggest lab.db --where "solvent > 3"
suggest lab.db --where "solvent == DMSO"
suggest lab.db --where "temperature > 500"
suggest lab.db --where "__import__('os')"
suggest lab.db --fix temperature
suggest lab.db --fix temperature=
suggest lab.db --fix =80
suggest lab.db --fix temp=80
suggest lab.db --fix temperature=85
suggest lab.db --fix temperature=hot
suggest lab.db --fix solvent=DMSO
suggest lab.db --same
suggest lab.db --same temp
suggest lab.db --same temperature=80
suggest lab.db --max-new solvent
suggest lab.db --max-new solvent=
suggest lab.db --max-new solvent=0
suggest lab.db --max-new solvent=-1
suggest lab.db --max-new solvent=two
suggest lab.db --max-new temp=2
suggest lab.db --pending --where "temperature == 80"
suggest lab.db --pending --fix temperature=80
suggest lab.db --separator . -o x.csv
suggest lab.db --decimal ; -o x.csv
export
export lab.db
export nowhere.db -o x.json
export lab.db -o x.txt
export lab.db -o x.db
export lab.db -o good.csv
export lab.db -o nowhere/x.csv
export lab.db x.json
import
import new.db
import new.db nowhere.json
import new.db copy.json
import new.db list.json
import new.db good.csv
import new.db notes.txt
import lab.db text.csv
import lab.db other.csv
import lab.db failed.csv
import lab.db unknown.csv
import lab.db good.csv --value nothing
import lab.db good.csv --decimal x
import lab.db backup.json
history lab.db --last -1
history nowhere.db
""".strip().splitlines()


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    folder = tmp_path_factory.mktemp("careless")
    (folder / "recipes.csv").write_text(TABLE)
    lab = folder / "lab.db"
    manyarms("init", lab, "--pool", folder / "recipes.csv", "--id", "name", "--maximize")
    manyarms("tell", lab, "DMF-80", 70)
    manyarms("tell", lab, "DMF-90", 75)
    manyarms("tell", lab, "DMF-90", 76)
    manyarms("suggest", lab, "-n", 2, "--where", "temperature < 60", "--where", "solvent == 'DMF'")
    manyarms("export", lab, "-o", folder / "backup.json")
    (folder / "good.csv").write_text("name,temperature,value\nwater-40,40,50\nwater-50,50,60\n")
    (folder / "once.csv").write_text("name,value\na,2\n")
    (folder / "ab.csv").write_text("name,x\na,1\nb,2\nc,3\n")
    once = folder / "once.db"
    manyarms(
        *("init", once, "--pool", folder / "ab.csv", "--id", "name"),
        *("--maximize", "--repeats", "never"),
    )
    manyarms("tell", once, "a", 1)
    for name, text in FILES.items():
        (folder / name).write_text(text)
    pl.DataFrame({"name": ["water-40"], "value": [50]}).write_parquet(folder / "book.xlsx")
    return folder


def states(folder):
    """Events and digest of every study there, and all files."""
    heads = {}
    for path in folder.glob("*.db"):
        with ma.Study.open(path) as study:
            study.verify()
            heads[path.name] = study.n_events, study._replica.head.digest
    files = {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix != ".db"}
    return heads, {name: text for name, text in files.items() if not name.endswith("-journal")}


@pytest.fixture(scope="module")
def careless(template, tmp_path_factory):
    """One copy for all lines, as none of them changes anything."""
    folder = tmp_path_factory.mktemp("copy") / "lab"
    shutil.copytree(template, folder)
    return folder


@pytest.mark.parametrize("line", LINES)
def test_a_careless_line_changes_nothing(careless, line, monkeypatch):
    monkeypatch.chdir(careless)
    before = states(careless)
    answer = said(*shlex.split(line))
    assert answer.code == 2, answer
    assert_one_line(answer)
    assert len(answer.err) < 1200
    assert states(careless) == before


def test_there_are_many_and_all_differ():
    assert len(set(LINES)) == len(LINES) >= 100
