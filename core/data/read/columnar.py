"""Parquet: its columns and its rows, read in small batches, since one row group may exceed the memory limit.

A value that pyarrow cannot convert (bytes that are no UTF-8, a date before the year 1) makes only its row unusable.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from core.contract.errors import DataError
from core.data.read.cells import Record
from core.data.read.delimited import apart
from core.data.read.jsonstream import ROW_LIMIT
from core.machine.textfile import Place

_BATCH_ROWS = 256
_BATCH_BYTES = 8 << 20
_METADATA_LIMIT = 64 << 20


def open_parquet(path: Path) -> tuple[tuple[str, ...], Callable[[Place], Iterator[Record]]]:
    """The columns of a Parquet file, and a function that reads its rows. Raises DataError where it is broken."""
    import pyarrow as pa

    try:
        with parquet_file(path) as file:
            columns = apart(list(file.schema_arrow.names))
            rows, batch_rows = file.metadata.num_rows, batch_rows_of(file)
    except MemoryError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataError("data.parquet", expected="a Parquet file", found="a broken one", name=path.name) from error
    size = path.stat().st_size

    def reading(place: Place) -> Iterator[Record]:
        number = place.bytes = 0
        try:
            with parquet_file(path) as file:
                for batch in file.iter_batches(batch_size=batch_rows, use_threads=False):
                    for record in batch_records(batch, columns, number):
                        number = record.row
                        yield record
                    place.bytes = size * number // max(1, rows)
        except MemoryError as error:
            raise DataError("data.memory/parquet_pages", number=number, name=path.name) from error
        except (pa.ArrowException, OSError, ValueError) as error:
            what = f"a broken file behind row {number:,}"
            raise DataError("data.parquet", expected="Parquet rows", found=what, name=path.name) from error

    return columns, reading


def batch_rows_of(file: Any) -> int:
    """How many rows of an opened file are read at a time."""
    count = min(file.metadata.num_row_groups, 1000)
    groups = [file.metadata.row_group(number) for number in range(count)]
    row_bytes = max((group.total_byte_size // max(1, group.num_rows) for group in groups), default=0)
    return max(1, min(_BATCH_ROWS, _BATCH_BYTES // max(1, row_bytes)))


def parquet_file(path: Path) -> Any:
    """The opened file, its metadata within limits."""
    import pyarrow.parquet as pq

    return pq.ParquetFile(
        path,
        buffer_size=1 << 20,
        pre_buffer=False,
        thrift_string_size_limit=_METADATA_LIMIT,
        thrift_container_size_limit=_METADATA_LIMIT // 64,
    )


def batch_records(batch: Any, columns: tuple[str, ...], before: int) -> Iterator[Record]:
    """The rows of a batch, numbered from ``before`` + 1."""
    size = batch.nbytes // max(1, batch.num_rows)
    if batch.nbytes <= 2 * _BATCH_BYTES:
        try:
            rows = list(zip(*(column.to_pylist() for column in batch.columns), strict=True))
        except (ValueError, OverflowError, TypeError):
            rows = []
        if len(rows) == batch.num_rows:
            for number, values in enumerate(rows, start=before + 1):
                yield Record(number, dict(zip(columns, values, strict=True)), "", size)
            return
    for number in range(batch.num_rows):
        yield _alone(batch.slice(number, 1), columns, before + number + 1)


def _alone(row: Any, columns: tuple[str, ...], number: int) -> Record:
    """One row by itself, with a fault where it is too large or a value cannot be converted."""
    size = int(row.nbytes)
    if size > ROW_LIMIT:
        return Record(number, {}, f"the row is larger than {ROW_LIMIT:,} bytes", size)
    values = {}
    for name, column in zip(columns, row.columns, strict=True):
        try:
            values[name] = column.to_pylist()[0]
        except (ValueError, OverflowError, TypeError) as error:
            what = "bytes that are no UTF-8 text" if isinstance(error, UnicodeError) else f"no {column.type} of ours"
            return Record(number, {}, f"{name} holds {what}", size)
    return Record(number, values, "", size)
