"""Candidates as a table: ids that stay, typed columns, encoded features."""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import polars as pl

from manyarms.checks import as_rows, is_whole, items_of
from manyarms.equal import group
from manyarms.errors import ArmsError, ParameterError, UnknownArmError, shortened
from manyarms.kernels.base import Kernel
from manyarms.kernels.objects import encoded, encoder_of
from manyarms.runtime.foreign import read_parquet
from manyarms.sheets.csvfiles import check_file
from manyarms.sheets.forked import check_threads
from manyarms.sheets.reading import Sheet, read_sheet
from manyarms.space.columns import TYPES, Feature, Objects, UnusedColumn
from manyarms.space.conditions import rows_where
from manyarms.space.deciding import checked_types
from manyarms.space.frames import (
    Declared,
    as_path,
    combined,
    read_array,
    read_dicts,
    read_frame,
)
from manyarms.space.ids import Ids, checked_ids, given_ids, text_of
from manyarms.space.molecules import BY_DESCRIPTORS
from manyarms.space.spelling import (
    NUMBER_TYPES,
    as_numbers_where_all_are,
    is_remarks_name,
    plain_kind,
    words_of,
)
from manyarms.space.tables import (
    Origin,
    Parts,
    TableResult,
    counted,
    encoded_columns,
    more_parts,
    new_parts,
)
from manyarms.typing import AnyArray, Array, ArrayLike, Indices, Mask

__all__ = ["Feature", "Pool"]

Columns = Mapping[str, str | Sequence[Any]]
OBJECT = "object"
"""The only column of a pool of objects."""
EXPECTED = "prior"
"""Name and type of the feature that says what a prior makes one expect."""


class Pool:
    """Candidates from a table: their ids, their rows as they came, and their features as numbers.

    Made by `from_objects` and `from_levels`, and by `from_csv`, `from_parquet`, `from_frame`,
    `from_dicts` and `from_array`, which take:

    - ``id``: the column of stable, unique ids, strings or whole numbers; None: the row numbers from
      0.
    - ``columns``: types that overrule those chosen by the values, a dict of names to "continuous",
      "log", "integer", "number", "boolean", "ordered", "categorical", "text", "bits", "smiles",
      "ignore", or to a list of levels in order.
      A "number" is continuous, log or integer by its values, and may come as text with a unit
      (80 °C); "number:RT=25" says what a word stands for. "categorical:merge" makes one level of
      those that differ by case or blanks alone. "smiles" are molecules, compared by fingerprints,
      or by a few descriptors as "smiles:descriptors"; both need RDKit.
    - ``missing``: what None and NaN do. "error"; "drop" leaves the rows out; "category" makes them
      a level of boolean and categorical columns, and is an error elsewhere. Columns that are not
      used may miss values.
    - ``target``: the column of outcomes, which is no feature. Filled cells are results, the word
      failed stands for a trial that failed, and blank cells are candidates. `Optimizer` and `Study`
      begin with the `results`. Rows with an id that came before are more trials of that candidate.

    By its values a column of numbers is continuous or integer, or log if all are positive and the
    95th percentile is at least 100 times the 5th; strings with a number and one unit are numbers;
    other strings are categorical if at least half of the rows hold one that another row holds too
    (up to 50 different ones always), else text; Enum and ordered categoricals are ordered; lists of
    0 and 1, and equally long strings of at least eight, are bits. A column that holds one value
    only is ignored unless a type is given for it, and so are remarks: text in a column called
    note, comment or remark, or in less than half of the rows. `columns` tells what was decided,
    `unused` what is no feature. Text that alone tells candidates apart is an error until its type
    is given.

    Candidates with the same features are one arm, a row of `X`: they share evidence and keep their
    ids. A pool never changes.

    Attributes
    ----------
    ids : ndarray, (n,)
        The id of each candidate: int64, or strings.
    X : ndarray, (A, d)
        The features of each arm, read-only: numbers scaled to [0, 1], then codes, then packed bits;
        `features` tells.
    arm_of : ndarray, (n,)
        The arm, a row of `X`, of the candidate at each position.
    """

    box: ClassVar[None] = None  # where points come from, which are no rows of a table

    def __init__(self, parts: Parts) -> None:
        if not isinstance(parts, Parts):
            made = (
                "from_array, from_frame, from_dicts, from_csv, from_parquet, from_levels or "
                "from_objects"
            )
            raise ArmsError(f"a pool is made by Pool.{made}, got {type(parts).__name__}")
        self.parts = parts
        self.ids = parts.ids.array
        self.X = parts.X
        self.arm_of = parts.arm_of

    @classmethod
    def from_csv(
        cls,
        path: str | Path,
        *,
        id: str | None = None,
        columns: Columns | None = None,
        missing: str = "error",
        target: str | None = None,
        decimal: Literal[".", ","] | None = None,
    ) -> "Pool":
        """The rows of a CSV file with a header, as spreadsheets write it, or of a workbook.

        Columns are separated by commas, semicolons, tabs or bars, whichever the header has most of.
        Files are in UTF-8, UTF-16 or Windows-1252.

        Parameters
        ----------
        path : str or Path
            The file, plain or gzipped; or a workbook, by the ending of its name (.xlsx, .xls,
            .ods), of which the first sheet with a table is read, or with "plan.xlsx#Runs" that
            sheet.
        id, columns, missing, target
            See `Pool`.
        decimal : str, optional
            The mark before the fraction of a number, "." or ","; found in the file where None.

        Returns
        -------
        Pool
            The candidates.

        Raises
        ------
        ArmsError
            The file cannot be read, or a value does not suit its column.
        """
        declared = checked_types(columns)
        return pool_of(
            sheet_of(as_path(path), id, declared, decimal), id, declared, missing, target
        )

    @classmethod
    def from_parquet(
        cls,
        path: str | Path,
        *,
        id: str | None = None,
        columns: Columns | None = None,
        missing: str = "error",
        target: str | None = None,
    ) -> "Pool":
        """The rows of a Parquet file.

        Parameters
        ----------
        path : str or Path
            The file.
        id, columns, missing, target
            See `Pool`.

        Returns
        -------
        Pool
            The candidates.
        """
        path = as_path(path)
        check_file(path)
        check_threads()
        declared = checked_types(columns)
        return Pool(new_parts(read_parquet(path), {}, id, declared, missing, target=target))

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        id: str | None = None,
        columns: Columns | None = None,
        missing: str = "error",
        target: str | None = None,
    ) -> "Pool":
        """The rows of a data frame of pandas, polars, pyarrow or what else narwhals knows.

        Parameters
        ----------
        frame : data frame
            Its index is left out.
        id, columns, missing, target
            See `Pool`.

        Returns
        -------
        Pool
            The candidates.
        """
        table, levels, types = read_frame(frame)
        if (
            isinstance(id, str)
            and id not in table.columns
            and id in getattr(getattr(frame, "index", None), "names", ())
        ):
            raise ParameterError(
                f"id must be a column, got {shortened(id)}, which is the index and left out; call "
                "reset_index() first"
            )
        for name in (id, target):
            types.pop(name if isinstance(name, str) else "", None)
        declared = types | checked_types(columns)
        return Pool(new_parts(table, levels, id, declared, missing, target=target))

    @classmethod
    def from_dicts(
        cls,
        rows: Iterable[Mapping[str, Any]],
        *,
        id: str | None = None,
        columns: Columns | None = None,
        missing: str = "error",
        target: str | None = None,
    ) -> "Pool":
        """One dict for each row.

        Parameters
        ----------
        rows : iterable of dict
            A key that a row does not have is a missing value.
        id, columns, missing, target
            See `Pool`.

        Returns
        -------
        Pool
            The candidates.
        """
        frame = read_dicts(rows)
        return Pool(new_parts(frame, {}, id, checked_types(columns), missing, target=target))

    @classmethod
    def from_array(
        cls,
        X: ArrayLike,
        *,
        ids: Sequence[Any] | AnyArray | None = None,
        names: Sequence[str] | None = None,
        columns: Columns | None = None,
        missing: str = "error",
    ) -> "Pool":
        """The rows of an array of numbers.

        Parameters
        ----------
        X : array_like, (n, d)
            Finite numbers.
        ids : sequence, optional
            An id for each row; 0, 1, … unless given.
        names : sequence of str, optional
            Of the columns; "x0", "x1", … unless given.
        columns, missing
            See `Pool`.

        Returns
        -------
        Pool
            The candidates.
        """
        return Pool(new_parts(read_array(X, names), {}, None, checked_types(columns), missing, ids))

    @classmethod
    def from_levels(
        cls,
        levels: Mapping[str, Sequence[Any]],
        *,
        where: str | None = None,
        exclude: str | None = None,
        columns: Columns | None = None,
    ) -> "Pool":
        """All combinations of the levels of some factors, but for those left out by conditions.

        Parameters
        ----------
        levels : dict of sequences
            By the name of the factor, such as ``{"base": ["K2CO3", "CsOAc"], "equivalents": [1,
            2]}``.
        where : str, optional
            Only combinations that meet this condition, such as ``"a + b + c == 1"``; see `where`.
        exclude : str, optional
            None that meets this one, such as ``"base == 'CsOAc' and temperature > 100"``.
        columns
            See `Pool`.

        Returns
        -------
        Pool
            The candidates, numbered from 0.
        """
        declared = checked_types(columns)
        return Pool(new_parts(combined(levels, where, exclude), {}, None, declared, "error"))

    @classmethod
    def from_objects(
        cls, objects: Sequence[Any], kernel: Kernel, *, ids: Sequence[Any] | AnyArray | None = None
    ) -> "Pool":
        """Objects of any kind that a kernel of objects can compare.

        The object of a candidate is ``row(id)["object"]``.

        Parameters
        ----------
        objects : sequence
            Such as strings.
        kernel : Kernel
            One of objects, such as `kernels.Spectrum`.
        ids : sequence, optional
            An id for each object; 0, 1, … unless given.

        Returns
        -------
        Pool
            The candidates.
        """
        if not isinstance(kernel, Kernel) or encoder_of(kernel) is None:
            raise ParameterError(
                "kernel must be one of objects, such as kernels.Spectrum or kernels.OnObjects, "
                f"got {shortened(kernel)}"
            )
        rows = as_rows(encoded(objects, kernel)).astype(np.float64, copy=False)
        numbers = np.arange(len(rows))
        named = checked_ids(given_ids(numbers if ids is None else ids, len(rows)), numbers)
        first, arm_of = group(rows)
        column = Objects(OBJECT, OBJECT, kernel, rows.shape[1])
        origin = Origin(None, ids is None, "error", {}, {})
        return Pool(
            Parts(
                origin, (_frame_of(objects),), (column,), len(rows), Ids(named), rows[first], arm_of
            )
        )

    def add(self, table: Any, *, ids: Sequence[Any] | AnyArray | None = None) -> "Pool":
        """A pool with more candidates.

        Columns may come in any order. What was encoded stays as it is, arm by arm: numbers are
        scaled as those of the first table (and may fall outside [0, 1]), new categories get new
        codes, new features new rows of `X`. Row numbers continue.

        Parameters
        ----------
        table : table
            A data frame, dicts, an array, the path of a .csv or .parquet file; or objects.
        ids : sequence, optional
            For pools made by `from_array` with ids.

        Returns
        -------
        Pool
            Another one; this one stays as it is.
        """
        if isinstance(table, str | Path) and self.kernel is None:
            table = self.read(table)
        if isinstance(table, Sheet):
            more = more_parts(self.parts, table.frame, ids, rows=table.rows, decimal=table.decimal)
            return Pool(more)
        return Pool(more_parts(self.parts, frame_of(self, table), ids))

    def read(self, path: str | Path, *, decimal: Literal[".", ","] | str | None = None) -> Sheet:
        """The table in a file, read as one of this pool: texts stay texts, ids keep their type.

        Parameters
        ----------
        path : str or Path
            A CSV or Parquet file, or a workbook.
        decimal : str, optional
            The mark before the fraction of a number, "." or ","; where None the one that the file
            of the pool has.

        Returns
        -------
        Sheet
            For `add`: its `frame`, and the `rows` that it has in the file.
        """
        origin = self.parts.origin
        mark = origin.decimal if decimal is None else decimal
        # What was text in the first table stays text, even where all of it looks like numbers.
        texts = {name for name, dtype in self.parts.tables[0].schema.items() if dtype == pl.String}
        texts |= {origin.id} if origin.id is not None and self.parts.ids.are_strings else set()
        return read_sheet(as_path(path), origin.id, texts, texts | {origin.target or ""}, mark)

    @property
    def expected(self) -> Array | None:
        """What a prior makes one expect of each arm, (A,), the first column of `X`: in standardised
        units above the median one, 0 for the worse half. None without a prior."""
        return self.X[:, 0] if self.parts.n_expected else None

    @property
    def kernel(self) -> Kernel | None:
        """The kernel that a pool of objects was made with; None for tables."""
        column = self.parts.columns[0]
        return column.kernel if isinstance(column, Objects) else None

    @cached_property
    def features(self) -> tuple[Feature, ...]:
        """What the columns of `X` are."""
        features: list[Feature] = []
        if self.expected is not None:
            features.append(Feature(EXPECTED, "numeric", 0, 1, EXPECTED))
        for column in encoded_columns(self.parts.columns):
            features += column.features(features[-1].stop if features else 0)
        return tuple(features)

    def completed(self, rows: Array) -> Array:
        """Encoded rows of which some columns were changed, with what a prior expects of them.

        Parameters
        ----------
        rows : ndarray, (n, d)
            With the columns of `X`.

        Returns
        -------
        ndarray, (n, d)
            The rows themselves where the pool has no prior.
        """
        rows = as_rows(rows, self.X.shape[1])
        return self.parts.completed(rows[:, self.parts.n_expected :])

    @property
    def names(self) -> tuple[str, ...]:
        """The columns of the table, without the ids."""
        return tuple(column.name for column in self.parts.columns)

    @property
    def columns(self) -> dict[str, str]:
        """The type of each column, as declared or as decided; "ignore" for one that holds a single
        value."""
        return {column.name: column.type for column in self.parts.columns}

    @property
    def unused(self) -> dict[str, str]:
        """The columns that are no features, and why."""
        return {
            column.name: column.why(column.name in self.parts.origin.declared)
            for column in self.parts.columns
            if isinstance(column, UnusedColumn)
        }

    @property
    def target(self) -> str | None:
        """The column of the table that says what came out, which is no feature."""
        return self.parts.origin.target

    @property
    def results(self) -> tuple[TableResult, ...]:
        """Id, value and note of each result that the target has; the value is None where the trial
        failed. A blank cell is no result."""
        return self.parts.results

    @property
    def remarks(self) -> str | None:
        """The column of remarks, called note, comment or remark, where the table has one."""
        return next((name for name in self.unused if is_remarks_name(name)), None)

    @property
    def notes(self) -> tuple[str, ...]:
        """What was done to the table as it was read, in sentences."""
        return self.parts.notes

    @property
    def decimal(self) -> str:
        """The mark before fractions in the file that the pool came from."""
        return self.parts.origin.decimal

    @property
    def units(self) -> dict[str, str]:
        """The units that stood behind the numbers of columns and of the target."""
        return {name: unit for name, unit in self.parts.origin.units.items() if unit}

    @property
    def words(self) -> dict[str, dict[str, float]]:
        """Words that stand for numbers, in lower case, by column."""
        declared = self.parts.origin.declared
        return {name: words for name, kind in declared.items() if (words := words_of(kind))}

    def members(self, arm: int) -> Indices:
        """The positions of the candidates that are an arm.

        Parameters
        ----------
        arm : int
            A row of `X`.

        Returns
        -------
        ndarray
            Positions in the table.
        """
        if not is_whole(arm) or not 0 <= arm < len(self.X):
            raise UnknownArmError(
                f"arm must be a row of X, from 0 to {len(self.X) - 1}, got {shortened(arm)}"
            )
        order, starts = self._by_arm  # sorted once: any arm's members are a slice
        return order[starts[arm] : starts[int(arm) + 1]]

    @cached_property
    def _by_arm(self) -> tuple[Indices, Indices]:
        # Stable, so that the members of an arm come in the order of the table.
        order = np.argsort(self.arm_of, kind="stable")
        order.setflags(write=False)
        return order, np.concatenate([[0], np.cumsum(np.bincount(self.arm_of))]).astype(np.intp)

    def positions(self, ids: Any) -> Indices:
        """The positions of one id, or of several.

        Parameters
        ----------
        ids : id or sequence of ids
            Of candidates.

        Returns
        -------
        ndarray
            Positions in the table.

        Raises
        ------
        UnknownArmError
            An id names no candidate.
        """
        return self.parts.ids.positions(ids)

    @property
    def id_column(self) -> str | None:
        """The column that the table had the ids in, None where rows are numbered."""
        return self.parts.origin.id

    def labels(self, ids: Sequence[Any]) -> list[Any]:
        """What people call these candidates: by their ids.

        Parameters
        ----------
        ids : sequence of ids
            Of candidates.

        Returns
        -------
        list
            The same ids. Of a box they are numbers of points.
        """
        return _listed(ids)

    def ids_of(self, labels: Sequence[Any]) -> list[Any]:
        """The ids that people mean, whether there are such candidates or not.

        Parameters
        ----------
        labels : sequence of str or int
            Ids as they are typed, or as a spreadsheet changed them: it takes 001 for 1.

        Returns
        -------
        list
            In the type that ids of this pool have.
        """
        if self.parts.ids.are_strings:
            return [self.parts.ids.meant(text_of(label)) or label for label in _listed(labels)]
        # So many digits always fit int64.
        found = [
            re.fullmatch(r"(-?\d{1,18})(\.0*)?", text_of(each).strip(), re.ASCII)
            for each in _listed(labels)
        ]
        return [int(each[1]) if each else label for each, label in zip(found, labels, strict=True)]

    def known(self, ids: Any, *, checked: bool = False) -> "tuple[Pool, Indices]":
        """The pool itself, and the positions of these ids: no candidate comes by being named.

        Parameters
        ----------
        ids : id or sequence of ids
            Of candidates.
        checked : bool
            Of no use here: ids of a log were checked before.

        Returns
        -------
        tuple of Pool and ndarray
            The pool, and positions in the table.
        """
        return self, self.positions(ids)

    def table(self, what: str) -> "Pool":
        """The pool itself; over a box, which has no table, the same call is an error.

        Parameters
        ----------
        what : str
            What the table is for.

        Returns
        -------
        Pool
            This one.
        """
        return self

    def where(self, condition: str) -> Mask:
        """Which candidates meet a condition.

        Parameters
        ----------
        condition : str
            Such as ``"base == 'CsOAc' and temperature > 100"``: comparisons of columns, numbers and
            text in quotes; `in`, `and`, `or`, `not`, ``+ - * /``. Names of columns that are not
            plain words stand in backticks. A column that is not used holds numbers where all its
            cells are numbers of one unit, or empty.

        Returns
        -------
        ndarray of bool
            One for each candidate.

        Raises
        ------
        ArmsError
            The condition cannot be read, or names a column or a level that is not there.
        """
        tables = pl.concat(self.parts.tables, how="vertical_relaxed")
        id = self.parts.origin.id
        named = {} if id is None else {id: pl.Series(self.ids.tolist())}
        numbers = {
            name: as_numbers_where_all_are(tables[name], self.decimal) for name in self.unused
        }
        return rows_where(tables.to_dict() | numbers | named, condition)

    def row(self, id: Any) -> dict[str, Any]:
        """The values of a candidate as they came, without its id.

        Parameters
        ----------
        id : str or int
            Of the candidate.

        Returns
        -------
        dict
            By column.
        """
        rows = self.rows(id)
        if len(rows) != 1:
            raise UnknownArmError(f"row takes one id, got {len(rows)}; rows takes several")
        return rows[0]

    def rows(self, ids: Any) -> list[dict[str, Any]]:
        """The values of candidates as they came, without their ids.

        Parameters
        ----------
        ids : id or sequence of ids
            Of candidates.

        Returns
        -------
        list of dict
            By column, one dict for each id.
        """
        positions = self.positions(ids)
        # A pool that has grown has several tables; a position says which, and where in it.
        ends = np.cumsum([len(table) for table in self.parts.tables])
        rows: list[dict[str, Any]] = [{}] * len(positions)
        for index, table in enumerate(self.parts.tables):
            start = ends[index] - len(table)
            here = np.flatnonzero((positions >= start) & (positions < ends[index]))
            # Column by column, which needs no threads: see forked.py.
            columns = [column.gather(positions[here] - start).to_list() for column in table]
            for place, values in zip(here, zip(*columns, strict=True), strict=True):
                rows[place] = dict(zip(table.columns, values, strict=True))
        return rows

    @property
    def size(self) -> int:
        """How many candidates there are."""
        return len(self.ids)

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        types = list(self.columns.values())
        counts = ", ".join(
            f"{types.count(kind)} {'ignored' if kind == 'ignore' else kind}"
            for kind in (*TYPES, BY_DESCRIPTORS, OBJECT)
            if kind in types
        )
        same = f" ({len(self.X):,} distinct)" if len(self.X) < len(self) else ""
        candidates = counted(len(self), "candidate")
        return f"Pool({candidates}{same}, {counted(len(types), 'column')}: {counts})"


def _listed(ids: Any) -> list[Any]:
    found = items_of(ids)
    if found is None:
        raise UnknownArmError(f"a sequence of ids is needed, got {shortened(ids)}")
    return found


def sheet_of(
    path: Path, id: str | None, declared: Mapping[str, Declared], decimal: str | None
) -> Sheet:
    """The table in a CSV or Parquet file or in a workbook, given the types that are declared."""
    # Read as numbers, bits and texts of digits would lose their zeros.
    texts = {name for name, kind in declared.items() if kind in ("bits", "text")}
    # Text is searched for numbers only where nothing else is declared.
    kept = {name for name, kind in declared.items() if plain_kind(kind) not in NUMBER_TYPES}
    return read_sheet(path, id, texts, kept, decimal)


def pool_of(
    sheet: Sheet,
    id: str | None,
    declared: dict[str, Declared],
    missing: str,
    target: str | None = None,
) -> Pool:
    """The candidates in a sheet."""
    marks: dict[str, Any] = {"decimal": sheet.decimal, "rows": sheet.rows}
    return Pool(new_parts(sheet.frame, {}, id, declared, missing, target=target, **marks))


def frame_of(pool: Pool, table: Any) -> pl.DataFrame:
    """A table that is to have the columns of a pool, as it came."""
    if pool.kernel is not None:
        return _frame_of(table)
    if isinstance(table, np.ndarray):
        # An array has no names: its columns are those of the pool, in their order.
        return read_array(table, pool.names)
    return read_dicts(table) if isinstance(table, list | tuple) else read_frame(table)[0]


def new_levels(before: Pool, after: Pool) -> dict[str, list[Any]]:
    """Levels that a pool that has grown has, and that it had not before, by column."""
    known = {feature.name: len(feature.levels) for feature in before.features}
    return {
        feature.name: list(feature.levels[known[feature.name] :])
        for feature in after.features
        if len(feature.levels) > known[feature.name]
    }


def _frame_of(objects: Any) -> pl.DataFrame:
    return pl.DataFrame([pl.Series(OBJECT, list(objects), dtype=pl.Object)])
