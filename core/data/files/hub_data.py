"""A data set of the hub as plain rows, streamed: only what is taken is fetched.

No code of a data set is run: ``datasets`` has none since its version 4, and of its readers only those of text tables
are used, none that opens pickles or media. A data set whose card points at files elsewhere (on this machine, on other
hosts) is refused. The token is huggingface_hub's own; messages never repeat a server's words, which might hold it.
"""

import os
import re
from collections import Counter
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from itertools import chain, islice
from typing import Any

from core.contract.errors import Fault, HubError
from core.machine.textfile import one_line

_NAME = re.compile(r"[A-Za-z0-9][\w.\-]*/[\w.\-]+")
_READERS = {"json", "csv", "parquet", "arrow", "text"}
_RETRIES = 3


def hub_rows(name: str, subset: str, split: str, rows_at_most: int) -> tuple[Iterator[dict[str, Any]], dict[str, Any]]:
    """The rows of one split, and their ORIGIN.json, which is complete after the last row.

    ``subset`` and ``split`` may be empty where there is only one (of splits: or one called train). ``rows_at_most``: 0
    takes all. Values that JSON does not know become text (dates, decimals), and bytes (pictures, sound) are left out;
    both are counted by column in the origin.

    Raises:
        HubError: missing, gated, offline, no such subset or split, or no table of text.
    """
    if not _NAME.fullmatch(name):
        raise HubError("hub.bad_id", name=one_line(name, 80))
    origin: dict[str, Any] = {"made": "hub", "name": name, "subset": subset, "split": split}
    try:
        stream, chosen = _open(name, subset, split)
    except Exception as error:  # the classes of network errors change between versions
        raise _translated(error, name) from error
    origin |= chosen
    return _rows(islice(stream, rows_at_most or None), name, origin), origin


def _open(name: str, subset: str, split: str) -> tuple[Any, dict[str, Any]]:
    os.environ["HF_UPDATE_DOWNLOAD_COUNTS"] = "false"
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
    import datasets

    datasets.disable_progress_bars()
    datasets.config.USE_PARQUET_EXPORT = False
    datasets.config.STREAMING_READ_MAX_RETRIES = _RETRIES
    try:
        builder = datasets.load_dataset_builder(f"hf://datasets/{name}", subset or None)
    except ValueError as error:
        known = datasets.get_dataset_config_names(f"hf://datasets/{name}")
        if subset in known:
            raise
        raise _no_such("a subset", subset, known, name) from error
    reader = type(builder).__module__.rpartition(".")[2]
    if reader not in _READERS:
        raise HubError("hub.no_table/reader", name=name, reader=one_line(reader, 40))
    inside = f"hf://datasets/{name.lower()}@"
    for file in chain.from_iterable((builder.config.data_files or {}).values()):
        # The address of a compressed file is "PROTOCOL://...::PLACE".
        if not str(file).lower().rpartition("::")[2].startswith(inside):
            raise HubError("hub.elsewhere", name=name)
    splits = builder.as_streaming_dataset()
    chosen = split or ("train" if "train" in splits else next(iter(splits)) if len(splits) == 1 else "")
    if chosen not in splits:
        raise _no_such("a split", split, list(splits), name)
    told = {"subset": builder.config.name, "split": chosen, "revision": str(builder.hash or "")}
    return splits[chosen].decode(False) if splits[chosen].features else splits[chosen], told


def _rows(stream: Iterator[dict[str, Any]], name: str, origin: dict[str, Any]) -> Iterator[dict[str, Any]]:
    changed, left_out = Counter[str](), Counter[str]()
    count = 0
    try:
        for row in stream:
            # ``datasets`` holds a picture or a sound as bytes, or as a dictionary with bytes.
            media = {
                column
                for column, value in row.items()
                if isinstance(value.get("bytes") if isinstance(value, dict) else value, bytes)
            }
            left_out.update(media)
            yield {column: _plain(value, column, changed) for column, value in row.items() if column not in media}
            count += 1
    except Exception as error:
        raise _translated(error, name) from error
    origin |= {"rows": count, "written_as_text": dict(changed), "left_out": dict(left_out)}


def _plain(value: Any, column: str, changed: Counter[str]) -> Any:
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, dict):
        return {str(key): _plain(inner, column, changed) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner, column, changed) for inner in value]
    changed[column] += 1
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    return str(value) if isinstance(value, (Decimal, timedelta)) else repr(value)


def _no_such(what: str, asked: str, known: list[str], name: str) -> HubError:
    listed = ", ".join(one_line(str(one), 40) for one in known[:20])
    answer = f"{one_line(asked, 40)!r}, which is none" if asked else "several"
    return HubError("hub.no_choice", what=what, name=name, found=answer, listed=listed or "none")


def _translated(error: Exception, name: str) -> Fault:
    """The Fault for an error of datasets, huggingface_hub or the network, without a server's words."""
    from huggingface_hub import HfApi, constants, errors

    if isinstance(error, Fault):
        return error
    chain = _chain(error)
    if type(error).__name__ == "DatasetNotFoundError":
        # datasets raises this for missing and for gated ones alike, without a cause.
        try:
            HfApi().auth_check(name, repo_type="dataset")
        except Exception as refusal:  # noqa: BLE001 - its class tells which
            chain += _chain(refusal)
    if any(isinstance(one, errors.GatedRepoError) for one in chain):
        return HubError("hub.gated/data", name=name, endpoint=constants.ENDPOINT)
    if any(isinstance(one, errors.RepositoryNotFoundError) for one in chain):
        return HubError("hub.missing/data", name=name)
    if constants.HF_HUB_OFFLINE:
        return HubError("hub.offline/data", name=name)
    # huggingface_hub speaks through httpx, or through httpx2.
    modules = {kind.__module__ for one in chain for kind in type(one).__mro__}
    of_network = any(module.startswith(("httpx", "httpcore")) for module in modules)
    if of_network or any(isinstance(one, (ConnectionError, TimeoutError)) for one in chain):
        return HubError("hub.unreachable/data", endpoint=constants.ENDPOINT, name=name, kind=type(chain[-1]).__name__)
    return HubError("hub.no_table/unreadable", name=name, kind=type(error).__name__)


def _chain(error: BaseException | None) -> list[BaseException]:
    chain: list[BaseException] = []
    while error is not None and error not in chain:
        chain.append(error)
        error = error.__cause__ or error.__context__
    return chain
