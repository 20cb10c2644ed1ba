"""Small files that hold, or say that they hold, far more than they have: by kind of file."""

import gzip
import io
import random
import zipfile
from collections.abc import Callable, Iterator

import polars as pl


def packed(size: int, text: bytes) -> bytes:
    """A text of about this size, gzipped as often over as it takes."""
    file = io.BytesIO()
    with gzip.GzipFile(fileobj=file, mode="wb", mtime=0) as archive:
        block = text * (1 + (1 << 20) // len(text))
        for _ in range(size // len(block)):
            archive.write(block)
    return file.getvalue()


def workbook(cells: str, texts: Iterator[bytes] = iter(()), dimension: str = "A1:B2") -> bytes:
    """A workbook of one sheet with these cells, as XML, and shared texts, as pieces of XML."""
    main = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    package = "http://schemas.openxmlformats.org/package/2006"
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    kind = "application/vnd.openxmlformats-officedocument.spreadsheetml"
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as book:
        book.writestr(
            "[Content_Types].xml",
            f'<Types xmlns="{package}/content-types"><Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
            f'<Override PartName="/xl/workbook.xml" ContentType="{kind}.sheet.main+xml"/>'
            f'<Override PartName="/xl/sharedStrings.xml" ContentType="{kind}.sharedStrings+xml"/>'
            f'<Override PartName="/xl/worksheets/sheet1.xml" ContentType="{kind}.worksheet+xml"/></Types>',
        )
        book.writestr(
            "_rels/.rels",
            f'<Relationships xmlns="{package}/relationships"><Relationship Id="r1" Type="{office}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        )
        book.writestr(
            "xl/workbook.xml",
            f'<workbook xmlns="{main}" xmlns:r="{office}"><sheets><sheet name="S" sheetId="1" r:id="r1"/></sheets></workbook>',
        )
        book.writestr(
            "xl/_rels/workbook.xml.rels",
            f'<Relationships xmlns="{package}/relationships"><Relationship Id="r1" Type="{office}/worksheet" Target="worksheets/sheet1.xml"/>'
            f'<Relationship Id="r2" Type="{office}/sharedStrings" Target="sharedStrings.xml"/></Relationships>',
        )
        with book.open("xl/sharedStrings.xml", "w", force_zip64=True) as shared:
            shared.write(f'<sst xmlns="{main}">'.encode())
            for piece in texts:
                shared.write(piece)
            shared.write(b"</sst>")
        with book.open("xl/worksheets/sheet1.xml", "w", force_zip64=True) as sheet:
            sheet.write(
                f'<worksheet xmlns="{main}"><dimension ref="{dimension}"/><sheetData>'.encode()
            )
            sheet.write(cells.encode())
            sheet.write(b"</sheetData></worksheet>")
    return file.getvalue()


def row(number: int, **cells: str) -> str:
    """A row of a sheet, by the letters of its columns."""
    found = "".join(
        f'<c r="{letters}{number}" t="inlineStr"><is><t>{text}</t></is></c>'
        for letters, text in cells.items()
    )
    return f'<row r="{number}">{found}</row>'


TABLE = row(1, A="id", B="x") + row(2, A="a", B="1") + row(3, A="b", B="2")
SHARED = '<row r="1"><c r="A1" t="s"><v>0</v></c><c r="B1" t="s"><v>1</v></c></row><row r="2"><c r="A2"><v>1</v></c></row>'


def long_text(size: int) -> Iterator[bytes]:
    yield b"<si><t>"
    for _ in range(size >> 20):
        yield b"a" * (1 << 20)
    yield b"</t></si><si><t>x</t></si>"


def _far(rng: random.Random) -> bytes:
    """A table with one more cell somewhere."""
    n = int(10 ** rng.uniform(0, 7))
    letters = "".join(
        rng.choice("ABCDEFGHIJKLMNOPQRSTUVWXYZ") for _ in range(rng.choice([1, 2, 3, 3, 4]))
    )
    return workbook(
        TABLE + row(n, **{letters: "1"}), dimension=rng.choice(["A1:B2", f"A1:{letters}{n}"])
    )


def _many(rng: random.Random) -> bytes:
    """Rows of the same few cells, which take next to nothing when packed."""
    n = int(10 ** rng.uniform(3, 5.5))
    cells = (
        "".join(row(i, A="x", B="1") for i in range(3, 3 + n // 10))
        if rng.random() < 0.5
        else "<row/>" * n
    )
    return workbook(TABLE + cells)


def workbooks() -> list[Callable[[random.Random], bytes]]:
    """Ways to make a bomb of a workbook."""
    return [
        _far,
        _far,
        _far,
        _many,
        lambda rng: workbook(SHARED, long_text(1 << rng.randrange(20, 29))),
        lambda rng: workbook("<row>" * rng.choice([1000, 100_000])),
        lambda rng: workbook(TABLE, dimension="A1:XFD1048576"),
    ]


def gzips() -> list[Callable[[random.Random], bytes]]:
    """Ways to make a bomb of a gzipped text."""
    texts = [
        b"\0",
        b"\n",
        b",",
        b"a",
        b"a,b\n",
        b'"',
        b"1\n",
        b"1,2,3\n",
        b'"a\n',
        b"a,\n",
        b";" * 99 + b"\n",
        b"\xff",
        b"\xc3\xa9",
    ]
    return [lambda rng: packed(1 << rng.randrange(20, 31), rng.choice(texts))]


def texts() -> list[Callable[[random.Random], bytes]]:
    """Ways to make a bomb of a plain text."""
    return [
        lambda rng: b"," * int(10 ** rng.uniform(3, 7.5)),
        lambda rng: b"id,x\n" + b"," * int(10 ** rng.uniform(3, 7.3)),
        lambda rng: b'id,"x\n' + b"," * int(10 ** rng.uniform(3, 7)),
        lambda rng: b"a" * int(10 ** rng.uniform(3, 7.5)),
        lambda rng: b"id,x\na," + b"9" * int(10 ** rng.uniform(1, 7)) + b"\nb,2\n",
        lambda rng: (
            b"id,x\n" + b"\n".join(b"m%d,%s" % (i, b"7" * 49 + b"%d" % i) for i in range(9))
        ),
        lambda rng: b"id,x\n" + b"\n" * int(10 ** rng.uniform(3, 7.3)),
        lambda rng: b"\n" * int(10 ** rng.uniform(3, 7.3)) + b"id,x\na,1\n",
    ]


def parquets() -> list[Callable[[random.Random], bytes]]:
    """Ways to make a bomb of a Parquet file."""
    return [_constant, _wide, lambda rng: nested(rng.choice([2, 20, 200]))]


def constant(n: int, value: object = 0) -> bytes:
    """A column of one value."""
    return _written(pl.DataFrame({"x": pl.Series([value]).new_from_index(0, n)}))


def _constant(rng: random.Random) -> bytes:
    return constant(int(10 ** rng.uniform(4, 7.8)), rng.choice([0, 0.5, True, "a", "a" * 50, None]))


def nested(depth: int) -> bytes:
    """A column in a column in a column."""
    column = pl.Series([1])
    for _ in range(depth):
        column = pl.DataFrame({"a": column}).to_struct()
    return _written(pl.DataFrame({"x": column}))


def _wide(rng: random.Random) -> bytes:
    return _written(pl.DataFrame({str(i): [0] for i in range(int(10 ** rng.uniform(2, 4)))}))


def _written(frame: pl.DataFrame) -> bytes:
    file = io.BytesIO()
    frame.write_parquet(file)
    return file.getvalue()
