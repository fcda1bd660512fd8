"""The in-memory catalog of a run, with a quicker way from a SQLAlchemy statement to SQLite.

Statements are compiled by SQLAlchemy, once each, and run by the sqlite3 module: the same SQL with the same parameters
in the same order, less what SQLAlchemy does around every single execution (events, cursors of its own, result
metadata), which would be most of the time of a run. A statement that needs more than that (defaults made in Python,
expressions that are expanded in unusual ways) takes SQLAlchemy's own way on the same connection. `test_database.py`
holds the two against each other.

A connection serves one run after the other, because SQLite then prepares each statement once and not anew in every run.
All that a run does is one transaction, taken back at its end; what commits or rolls back for the run is a savepoint
inside it.
"""

from __future__ import annotations

import re
import sqlite3
from collections import namedtuple
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeVar, cast

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError, MultipleResultsFound, NoResultFound

from headgate_coordinator.catalog.inline import InlineDatabase

if TYPE_CHECKING:
    from headgate_simulation.store import SimulatedStore

T = TypeVar("T")

_EXPANDING = re.compile(r"__\[POSTCOMPILE_(.*?)\]")
# Marks a bind parameter whose value is part of the compiled statement itself.
_OWN = -1
COUNTED = ("consumer_groups", "grants", "group_offsets", "partitions", "topics")


class FastDatabase(InlineDatabase):
    """An empty `InlineDatabase` with a `FastConnection`, on a connection of an earlier one where there is one."""

    begin_write = begin_read = "SAVEPOINT work"

    def __init__(self) -> None:
        if _SPARE:
            self.connection, self.raw, self.head = _SPARE.pop()
            self.stores = []
        else:
            super().__init__()
            self.connection = cast(Connection, FastConnection(self.connection, self.raw))
        # How often rows of the tables in COUNTED were written, also where that was taken back: for whoever looks at a
        # table after every commit, to look only if there is something to see.
        self.writes = cast(FastConnection, self.connection).writes
        self._empty = self.head
        # Whoever follows what is committed here.
        self.followers: list[SimulatedStore] = []
        self.raw.execute("BEGIN IMMEDIATE")

    def read(self, operation: Callable[[Connection, int], T]) -> T:
        """Runs an operation that only reads, with the last revision."""
        before = self.raw.total_changes
        result = operation(self.connection, self.head)
        if self.raw.total_changes != before:
            raise AssertionError("a read operation wrote to the catalog")
        return result

    def close(self) -> None:
        """Everything since the beginning is taken back, and the connection is kept for the next."""
        self.raw.execute("ROLLBACK")
        _SPARE.append((self.connection, self.raw, self._empty))


class Rows:
    """What SQLAlchemy's `Result` is for those who use it in the catalog: read once, then over."""

    __slots__ = ("_rows", "rowcount")

    def __init__(self, rows: Iterable[Any], rowcount: int) -> None:
        self._rows: Iterator[Any] = iter(rows)
        self.rowcount = rowcount

    def __iter__(self) -> Iterator[Any]:
        return self._rows

    def all(self) -> list[Any]:
        return list(self._rows)

    fetchall = all

    def first(self) -> Any:
        return next(self._rows, None)

    fetchone = first

    def one_or_none(self) -> Any:
        row = next(self._rows, None)
        if row is not None and next(self._rows, None) is not None:
            raise MultipleResultsFound("Multiple rows were found when one or none was required")
        return row

    def one(self) -> Any:
        row = self.one_or_none()
        if row is None:
            raise NoResultFound("No row was found when one was required")
        return row

    def scalars(self) -> Rows:
        return Rows([row[0] for row in self._rows], self.rowcount)

    def scalar(self) -> Any:
        row = self.first()
        return None if row is None else row[0]

    def scalar_one(self) -> Any:
        return self.one()[0]

    def scalar_one_or_none(self) -> Any:
        row = self.one_or_none()
        return None if row is None else row[0]


class _Prepared:
    """A compiled statement, ready to be run: its SQL, where each parameter comes from, and what its rows are."""

    __slots__ = ("expanding", "expands", "make", "one_list", "readers", "row", "sources", "sql", "variants")

    def __init__(self, compiled: Any, dialect: Any) -> None:
        self.sql: str = compiled.string
        self.variants: dict[tuple[int, ...], str] = {}
        original = compiled.cache_key.bindparams if compiled.cache_key is not None else ()
        matches = compiled._cache_key_bind_match[0] if compiled._cache_key_bind_match else {}
        place = {bound: index for index, known in enumerate(original) for bound in matches.get(known, (known,))}
        names = {name: bound for bound, name in compiled.bind_names.items()}
        processors = compiled._bind_processors
        self.expanding = frozenset(names[name].key for name in _EXPANDING.findall(self.sql))
        # Key, index among the extracted parameters, parameter itself, processor.
        self.sources: list[tuple[str, int, Any, Callable[[Any], Any] | None]] = []
        for name in compiled.positiontup or ():
            bound = names[name]
            processor = processors.get(name)
            if isinstance(processor, tuple):
                raise NotImplementedError
            self.sources.append((bound.key, place.get(bound, _OWN), bound, processor))
        # Of each source, whether it is a list.
        self.expands = [source[0] in self.expanding for source in self.sources]
        self.one_list = self.expands == [True]
        columns = compiled._result_columns
        self.row: Any = None
        self.readers: list[tuple[int, Callable[[Any], Any]]] = []
        if columns:
            self.row = _row_type(tuple(column.keyname for column in columns))
            self.make = partial(tuple.__new__, self.row)
            for index, column in enumerate(columns):
                reader = column.type.dialect_impl(dialect).result_processor(dialect, None)
                if reader is not None:
                    self.readers.append((index, reader))

    def values(self, given: Any, extracted: Any) -> list[Any]:
        found = []
        for key, index, bound, processor in self.sources:
            if given is not None and key in given:
                value = given[key]
            else:
                holder = extracted[index] if index >= 0 else bound
                if holder.required:
                    raise KeyError(f"no value for {key}")
                value = holder.effective_value
            if processor is not None:
                value = [processor(one) for one in value] if key in self.expanding else processor(value)
            found.append(value)
        return found

    def pick(self, keys: tuple[str, ...], extracted: Any) -> Callable[[Any], Sequence[Any]] | None:
        """What takes the values in their order, for one statement that is executed again and again: those that are
        given, between those that are its own. None where one of its own is made anew each time."""
        wanted = [key for key, _, _, processor in self.sources if key in keys and processor is None]
        if wanted and len(wanted) == len(self.sources):
            if len(wanted) == 1:
                (only,) = wanted
                return lambda given: (given[only],)
            return itemgetter(*wanted)
        template: list[Any] = [None] * len(self.sources)
        places: list[tuple[int, str, Callable[[Any], Any] | None]] = []
        for place, (key, index, bound, processor) in enumerate(self.sources):
            process = _for_each(processor) if processor is not None and key in self.expanding else processor
            holder = extracted[index] if index >= 0 else bound
            if key in keys:
                places.append((place, key, process))
            elif holder.required or holder.callable is not None:
                return None
            else:
                template[place] = holder.value if process is None else process(holder.value)

        def take(given: Any) -> list[Any]:
            values = template.copy()
            for place, key, processor in places:
                values[place] = given[key] if processor is None else processor(given[key])
            return values

        return take

    def lists(self, values: Sequence[Any]) -> Iterator[Any]:
        return (value for expands, value in zip(self.expands, values, strict=True) if expands)

    def expanded(self, values: Sequence[Any]) -> tuple[str, list[Any]]:
        """The SQL for lists of these lengths, and their items in a row."""
        if self.one_list:
            (only,) = values
            sql = self.variants.get((len(only),))
            if sql is not None:
                return sql, only
        flat: list[Any] = []
        lengths = []
        for expands, value in zip(self.expands, values, strict=True):
            if expands:
                flat += value
                lengths.append(len(value))
            else:
                flat.append(value)
        key_of = tuple(lengths)
        sql = self.variants.get(key_of)
        if sql is None:
            counts = iter(lengths)
            sql = self.variants[key_of] = _EXPANDING.sub(lambda _: ", ".join("?" * next(counts)), self.sql)
        return sql, flat


class FastConnection:
    """`Connection` for catalog operations. See the module."""

    def __init__(self, slow: Connection, raw: sqlite3.Connection) -> None:
        self._slow = slow
        self._raw = raw
        # One cursor for all: what a statement answers is taken before the next one runs.
        self._run = raw.cursor().execute
        self.dialect = slow.dialect
        self.writes = _count_writes(raw)

    def begin(self) -> _Transaction:
        return _Transaction(self._raw)

    def exec_driver_sql(self, sql: str) -> Any:
        return self._raw.execute(sql)

    def close(self) -> None:
        self._slow.close()

    def execute(self, statement: Any, parameters: Any = None) -> Any:
        many = type(parameters) is list
        first = parameters[0] if many else parameters
        keys = tuple(first) if first else ()
        known = _KNOWN.get((id(statement), keys, many))
        if known is not None:
            _, prepared, extracted, pick = known
        else:
            prepared, extracted = self._compile(statement, keys, many)
            pick = None
        if prepared is False:
            return self._slow.execute(statement, parameters)
        try:
            if many:
                values = [prepared.values(one, extracted) if pick is None else pick(one) for one in parameters]
                return Rows((), self._raw.executemany(prepared.sql, values).rowcount)
            bound = prepared.values(parameters, extracted) if pick is None else pick(parameters)
            sql = prepared.sql
            if prepared.expanding:
                if not all(bound if prepared.one_list else prepared.lists(bound)):
                    return self._slow.execute(statement, parameters)
                sql, bound = prepared.expanded(bound)
            cursor = self._run(sql, bound)
        except sqlite3.Error as error:
            raise DBAPIError.instance(
                prepared.sql, None, error, sqlite3.Error, hide_parameters=True, dialect=self.dialect
            ) from error
        if prepared.row is None:
            return Rows((), cursor.rowcount)
        fetched = cursor.fetchall()
        if prepared.readers:
            return Rows(_read(prepared, fetched), -1)
        return Rows(map(prepared.make, fetched), -1)

    def _compile(self, statement: Any, keys: tuple[str, ...], many: bool) -> tuple[Any, Any]:
        """The prepared statement, and where its own values are. One that comes again is then found by its identity."""
        seen_before = "_generate_cache_key" in statement.__dict__
        compiled, extracted, collected, _ = statement._compile_w_cache(
            self.dialect, compiled_cache=_COMPILED, column_keys=sorted(keys), for_executemany=many
        )
        prepared = _PREPARED.get(compiled)
        if prepared is None:
            prepared = _PREPARED[compiled] = _prepare(compiled, self.dialect)
        if collected:
            return False, None
        if seen_before:
            # (kept alive here, so that nothing else ever has its id)
            pick = prepared.pick(keys, extracted) if prepared is not False else None
            _KNOWN[id(statement), keys, many] = (statement, prepared, extracted, pick)
        return prepared, extracted


class Session:
    """The connection of one process, on which its store begins and ends one transaction after the other.

    `committing` is called when a commit is sent, and may raise: then it does not happen.
    """

    __slots__ = ("_begun", "_committing", "_raw", "dialect", "execute")

    def __init__(self, database: FastDatabase, committing: Callable[[], None]) -> None:
        self._raw = database.raw
        self._committing = committing
        self._begun = False
        self.execute = database.connection.execute
        self.dialect = database.connection.dialect

    def begin(self) -> Session:
        """The transaction, which the next statement begins."""
        return self

    def exec_driver_sql(self, sql: str) -> None:
        if sql == "BEGIN IMMEDIATE":
            sql, self._begun = "SAVEPOINT work", True
        self._raw.execute(sql)

    def commit(self) -> None:
        self._committing()
        self._raw.execute("RELEASE work")
        self._begun = False

    def rollback(self) -> None:
        if self._begun:
            self._raw.execute("ROLLBACK TO work")
            self._raw.execute("RELEASE work")
            self._begun = False

    close = rollback


class _Transaction:
    """A transaction that its store has begun, or is about to, with a statement of its own: a savepoint."""

    __slots__ = ("_over", "_raw")

    def __init__(self, raw: sqlite3.Connection) -> None:
        self._raw = raw
        self._over = False

    def commit(self) -> None:
        self._raw.execute("RELEASE work")
        self._over = True

    def rollback(self) -> None:
        if not self._over:
            self._raw.execute("ROLLBACK TO work")
            self.commit()

    def __enter__(self) -> _Transaction:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.rollback()


# Connections that no run uses now, each to an empty catalog, and its revision.
_SPARE: list[tuple[Connection, sqlite3.Connection, int]] = []
_COMPILED: dict[Any, Any] = {}
_KNOWN: dict[tuple[int, tuple[str, ...], bool], tuple[Any, Any, Any, Any]] = {}
_PREPARED: dict[Any, Any] = {}
_ROW_TYPES: dict[tuple[str, ...], Any] = {}


def _prepare(compiled: Any, dialect: Any) -> Any:
    """False where SQLAlchemy must do it."""
    if compiled.isinsert and compiled.insert_prefetch:
        return False
    if compiled.isupdate and compiled.update_prefetch:
        return False
    if compiled.literal_execute_params or compiled.effective_returning:
        return False
    try:
        return _Prepared(compiled, dialect)
    except NotImplementedError:
        return False


def _count_writes(raw: sqlite3.Connection) -> dict[str, int]:
    """By the database itself, so that what a foreign key or a trigger does counts too."""
    writes = dict.fromkeys(COUNTED, 0)

    def wrote(table: str) -> None:
        writes[table] += 1

    raw.create_function("wrote", 1, wrote)
    for table in COUNTED:
        for change in ("INSERT", "UPDATE", "DELETE"):
            raw.execute(
                f"CREATE TEMP TRIGGER count_{change}_of_{table} AFTER {change} ON main.{table} "
                f"BEGIN SELECT wrote('{table}'); END"
            )
    return writes


def _for_each(processor: Callable[[Any], Any]) -> Callable[[Any], list[Any]]:
    return lambda values: [processor(value) for value in values]


def _row_type(keys: tuple[str, ...]) -> Any:
    made = _ROW_TYPES.get(keys)
    if made is None:
        base: Any = namedtuple("Row", keys, rename=True)  # type: ignore[misc]

        class Row(base):
            __slots__ = ()

            @property
            def _mapping(self) -> dict[str, Any]:
                return dict(zip(keys, self, strict=True))

        made = _ROW_TYPES[keys] = Row
    return made


def _read(prepared: _Prepared, fetched: list[Any]) -> Iterator[Any]:
    for row in fetched:
        values = list(row)
        for index, reader in prepared.readers:
            values[index] = reader(values[index])
        yield prepared.make(values)
