"""The rows of a Parquet file by their places.

A row group may hold a million rows and can only be read from its beginning, so its rows are written once, batch by
batch and compressed, to a file without a name, which ends with the process.
"""

import tempfile
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from core.data.files.disk_room import Room
from core.data.read.cells import Record
from core.data.read.columnar import batch_records, batch_rows_of, parquet_file
from core.data.table.index import MOST_ROWS, Index


class ParquetIndex(Index):
    """Grows by a batch of rows at a time; ends early where the disk has no room for more."""

    def __init__(self, path: Path, columns: tuple[str, ...], folder: Path) -> None:
        """``folder``: where the rows are written to."""
        super().__init__()
        self._path, self._columns = path, columns
        self._room = Room(folder, path.stat().st_size)
        self._spool = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - lives as long as this does
        self._places, self._offsets = array("I"), array("Q", [0])
        """The place of each batch's first row, and where the batches stand."""
        self._walk = self._steps()

    def read(self, first: int) -> Iterator[Record]:
        """The known rows from this place on."""
        import pyarrow as pa

        begin = bisect_right(self._places, first) - 1
        for number in range(max(0, begin), len(self._places)):
            self._spool.seek(self._offsets[number])
            written = self._spool.read(self._offsets[number + 1] - self._offsets[number])
            with pa.ipc.open_stream(written) as stream:
                batch = stream.read_next_batch()
            skipped = max(0, first - self._places[number])
            yield from batch_records(batch.slice(skipped), self._columns, self._places[number] + skipped)

    def block(self, _first: int) -> None:
        """None: no text stands in the file."""

    def _step(self) -> bool:
        return next(self._walk, True)

    def _steps(self) -> Iterator[bool]:
        with parquet_file(self._path) as file:
            for batch in file.iter_batches(batch_size=batch_rows_of(file), use_threads=False):
                self._write(batch)
                yield len(self) >= MOST_ROWS

    def _write(self, batch: Any) -> None:
        import pyarrow as pa

        sink = pa.BufferOutputStream()
        packed = pa.ipc.IpcWriteOptions(compression="lz4")
        with pa.ipc.new_stream(sink, batch.schema, options=packed) as stream:
            stream.write_batch(batch)
        written = sink.getvalue()
        self._room.take(written.size)
        self._spool.seek(self._offsets[-1])
        self._spool.write(written)
        self._places.append(len(self))
        self._offsets.append(self._offsets[-1] + written.size)
        count = batch.num_rows
        self.numbers.extend(range(len(self) + 1, len(self) + count + 1))
        self.sizes.frombytes(_sizes(batch).astype(np.uint32).tobytes())


def _sizes(batch: Any) -> Any:
    """About the characters of each row: uint32 ``[rows]``."""
    import pyarrow as pa
    import pyarrow.compute as pc

    sizes = np.zeros(batch.num_rows, np.int64)
    for column in batch.columns:
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            sizes += pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False)
        elif pa.types.is_nested(column.type):
            sizes += np.fromiter((column.slice(row, 1).nbytes for row in range(len(column))), np.int64, len(column))
    return np.minimum(sizes, (1 << 31) - 1)
