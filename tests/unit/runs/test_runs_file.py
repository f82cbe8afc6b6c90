"""A run as one file: given away without anything of this machine, opened as a run of its own, and refused where it is
no such file."""

import getpass
import hashlib
import json
import socket
import stat
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from living_runs import Config, bare_run, finished

from core.cli.commands import main
from core.contract.config import DataChoice, LoraChoice, ModelChoice, RunConfig, TrainChoice
from core.contract.errors import Fault, RunError
from core.contract.events import Evaluation, Failed, Finished, Note, Queued, Sample, Starting, Step
from core.machine.locations import Locations
from core.machine.locks import FileLock
from core.runs.control.open_file import open_run_file
from core.runs.control.store import RunStore
from core.runs.folder.held_out_rows import Draw, draw_path, kept_draw, write_draw
from core.runs.folder.job_folder import JobFolder
from core.runs.folder.notes import mark, note_asked, read_asked, read_marks, read_opened
from core.runs.log.events_log import EventWriter
from core.runs.log.lines import sealed
from core.runs.record import run_file
from core.runs.record.job_record import RunRecord
from core.runs.record.summary import summarise
from core.train.keep.checkpoint import verify

SHA = "a" * 64


@pytest.fixture
def given(store: RunStore) -> JobFolder:
    """A run with all that a file may hold, and with this machine in everything that it says."""
    home = store.locations.home
    config = RunConfig(
        name="Kind one", resume_from="2026-11-20_2243_other_k3f9",
        data=DataChoice(path=f"{home}/data/{SHA}/support.csv", sha256=SHA),
        model=ModelChoice(source="folder", name="/srv/models/Qwen3-4B"), lora=LoraChoice(r=32),
        train=TrainChoice(report_to="tensorboard"),
    )  # fmt: skip
    folder = bare_run(store, config)
    note_asked(folder, config, (10.0, 20.0))
    mark(folder, {"note": "the calm one", "tags": ["support"], "colour": 2, "pinned": True})
    write_draw(draw_path(folder.path), Draw(rows=9, tokens_sha256="b", held_out=[1], order_sha256="c"))
    folder.report_json.write_text(json.dumps({"data": f"{home}/data/{SHA}/support.csv"}))
    fault = Failed(code="disk.full", message=f"No room in {home}/runs.", key="disk.full/x",
                   values={"path": "/mnt/other/place.txt", "host": socket.gethostname()})  # fmt: skip
    writer = EventWriter(folder.events, 1)
    for event in (
        Queued(), Starting(), Evaluation(loss=2.0), *(Step(step=n, loss=2 - n / 10) for n in range(1, 9)),
        Note(text=f"Read {folder.path}/worker.log and /opt/data/rows.jsonl of {getpass.getuser()}", hint="See log"),
        Sample(prompt="Where is /usr/bin/env?", text="In /usr/bin.", command_id="way-0"), Evaluation(step=8, loss=1.2),
        fault, Starting(resumed_step=8), Finished(step=8),
    ):  # fmt: skip
        writer.write(event)
    writer.close()
    adapter = folder.checkpoints / "step-000008" / "adapter"
    adapter.mkdir(parents=True)
    (adapter / "adapter_config.json").write_text(
        json.dumps({"peft_type": "LORA", "r": 4, "base_model_name_or_path": "/srv/models/Qwen3-4B"})
    )
    header = json.dumps({"lora_A.weight": {"dtype": "F32", "shape": [4, 2], "data_offsets": [0, 32]}}).encode()
    (adapter / "adapter_model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(32))
    (adapter.parent / "optimizer.bin").write_bytes(bytes(99))
    (adapter.parent / "MANIFEST.json").write_text(json.dumps({"step": 8, "eval_loss": 1.2, "files": {}}))
    return folder


def written(folder: JobFolder, path: Path, with_adapter: bool = False) -> Path:
    with path.open("wb") as file:
        run_file.write_run_file(folder, file, with_adapter)
    return path


def said(record: RunRecord) -> list[Any]:
    return [(one.step, one.loss) for one in (*record.steps, *record.evaluations)]


def test_a_run_goes_into_a_file_and_comes_out_as_one_of_its_own(
    store: RunStore, given: JobFolder, tmp_path: Path
) -> None:
    file = written(given, tmp_path / run_file.file_name(given))
    assert file.name == "Kind-one.luthier.zip"
    elsewhere = Locations(tmp_path / "elsewhere")
    run_id = open_run_file(file, elsewhere)
    there = RunStore(elsewhere)
    folder, record = there.open(run_id), there.record(run_id)
    assert run_id != given.name
    assert (record.state, record.damaged, said(record)) == ("finished", 0, said(store.record(given.name)))
    assert record.samples[0].text == "In /usr/bin."
    config = folder.config()
    assert (config.name, config.data.path, config.data.sha256, config.lora.r) == ("Kind one", "support.csv", SHA, 32)
    assert (config.model.name, config.resume_from, config.train.report_to) == ("Qwen3-4B", "", "none")
    asked, opened, marks = read_asked(folder), read_opened(folder), read_marks(folder)
    assert asked is not None
    assert opened is not None
    assert (asked.config.data.path, asked.seconds, opened.run_id) == ("support.csv", (10.0, 20.0), given.name)
    assert (marks.note, marks.tags, marks.colour, marks.pinned) == ("the calm one", ("support",), 2, False)
    assert kept_draw(folder.path) == kept_draw(given.path)
    run = summarise(folder)
    assert (run.opened, run.kept, run.settings["lora.r"], run.best_loss) == (True, False, 32, 1.2)
    for ask, done in ((there.resume, "resumed"), (there.report, "measured")):
        with pytest.raises(RunError, match=f"cannot be {done}"):
            ask(run_id)
    assert open_run_file(written(folder, tmp_path / "again.zip"), elsewhere) != run_id, "and is given on"
    assert len(there.list()) == 2


def test_nothing_of_this_machine_is_in_the_file(store: RunStore, given: JobFolder, tmp_path: Path) -> None:
    with zipfile.ZipFile(written(given, tmp_path / "a.zip", with_adapter=True)) as archive:
        entries = archive.infolist()
        texts = {entry.filename: archive.read(entry).decode(errors="replace") for entry in entries}
    assert {entry.date_time for entry in entries if entry.filename != run_file.CONTENTS} == {(1980, 1, 1, 0, 0, 0)}
    whole = "".join(text for name, text in texts.items() if name != "run.yaml")
    for own in (str(store.locations.home), "/srv/models", "/opt/data", "/mnt/other", str(Path.home()) + "/"):
        assert own not in whole + texts["run.yaml"], own
    if len(socket.gethostname()) > 4:
        assert socket.gethostname() not in whole
    assert "Read worker.log and rows.jsonl of" in texts["events.jsonl"]
    assert "place.txt" in texts["events.jsonl"]
    assert texts["verdict.txt"].endswith("held-out loss 2.000 → 1.200\n")
    assert "optimizer.bin" not in "".join(texts)


def test_the_adapter_goes_along_where_it_is_asked_for(given: JobFolder, tmp_path: Path) -> None:
    elsewhere = Locations(tmp_path / "elsewhere")
    folder = JobFolder(elsewhere.runs / open_run_file(written(given, tmp_path / "a.zip", with_adapter=True), elsewhere))
    checkpoint = folder.newest_checkpoint()
    assert checkpoint is not None
    assert (checkpoint.name, verify(checkpoint), summarise(folder).kept) == ("step-000008", "", True)
    again = written(folder, tmp_path / "b.zip", with_adapter=True)
    assert zipfile.ZipFile(again).read("adapter/adapter_model.safetensors")[-32:] == bytes(32)
    (given.checkpoints / "step-000008" / "MANIFEST.json").unlink()
    with pytest.raises(RunError, match="checkpoint with an adapter"):
        written(given, tmp_path / "c.zip", with_adapter=True)


# ── hostile files ────────────────────────────────────────────────────────────────────────────────────────────────────

Entries = dict[str, bytes]


def entries_of(path: Path) -> Entries:
    with zipfile.ZipFile(path) as archive:
        return {entry.filename: archive.read(entry) for entry in archive.infolist()}


def put(path: Path, entries: Entries, listed: bool = True, **more: bytes) -> Path:
    """A file of these entries, with a table of contents that is right unless one stands among them."""
    own = {name: text for name, text in (entries | more).items() if name != run_file.CONTENTS}
    files = {name: {"bytes": len(text), "sha256": hashlib.sha256(text).hexdigest()} for name, text in own.items()}
    about = json.dumps({"version": 1, "run": "../../x", "files": files}).encode()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in own.items():
            archive.writestr(name, text)
        archive.writestr(run_file.CONTENTS, about if listed else entries[run_file.CONTENTS])
    return path


def with_link(path: Path, entries: Entries, place: str = "name") -> None:
    put(path, {name: text for name, text in entries.items() if name != place})
    with zipfile.ZipFile(path, "a") as archive:
        link = zipfile.ZipInfo(place)
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")


def twice(path: Path, entries: Entries) -> None:
    put(path, entries)
    with pytest.warns(UserWarning, match="Duplicate name"), zipfile.ZipFile(path, "a") as archive:
        archive.writestr("run.yaml", "name: other")


def bomb(path: Path, entries: Entries) -> None:
    """Says that it is small, and is not."""
    about = json.loads(entries[run_file.CONTENTS])
    about["files"]["report.json"] = {"bytes": 10, "sha256": SHA}
    put(path, entries | {"report.json": bytes(50 << 20), run_file.CONTENTS: json.dumps(about).encode()}, listed=False)


def large(path: Path, entries: Entries) -> None:
    put(path, entries | {"report.json": bytes((16 << 20) + 1)})


def lines(*texts: bytes) -> bytes:
    return b"".join(text + b"\n" for text in texts)


WHOLE = sealed(b'{"kind":"queued"}', 1)
HOSTILE: dict[str, Callable[[Path, Entries], object]] = {
    "no zip": lambda path, _: path.write_bytes(b"PK\x03\x04 no zip"),
    "nothing": lambda path, _: path.write_bytes(b""),
    "another zip": lambda path, _: zipfile.ZipFile(path, "w").writestr("a.txt", "a"),
    "out of the folder": lambda path, all_: put(path, all_ | {"../../out.txt": b"x"}),
    "an absolute path": lambda path, all_: put(path, all_ | {"/tmp/luthier-out.txt": b"x"}),
    "a supervisor": lambda path, all_: put(path, all_ | {"supervisor.json": b"{}"}),
    "a link beside": with_link,
    "a link": partial(with_link, place="marks.json"),
    "a name twice": twice,
    "a bomb": bomb,
    "too large": large,
    "no log": lambda path, all_: put(path, {name: text for name, text in all_.items() if name != "events.jsonl"}),
    "half an adapter": lambda path, all_: put(path, all_ | {"adapter/adapter_config.json": b"{}"}),
    "a damaged line": lambda path, all_: put(path, all_ | {"events.jsonl": lines(WHOLE, WHOLE[:-4] + b'x"}')}),
    "a missing line": lambda path, all_: put(path, all_ | {"events.jsonl": lines(WHOLE, sealed(b'{"kind":"x"}', 5))}),
    "a torn line": lambda path, all_: put(path, all_ | {"events.jsonl": WHOLE}),
    "bad settings": lambda path, all_: put(path, all_ | {"run.yaml": b"lora: {r: none}"}),
    "a yaml bomb": lambda path, all_: put(path, all_ | {"run.yaml": b"a: &a [1]\nb: [" + b"*a," * 90_000 + b"]"}),
    "no contents": lambda path, all_: put(path, all_ | {run_file.CONTENTS: b"[]"}, listed=False),
    "deep contents": lambda path, all_: put(path, all_ | {run_file.CONTENTS: b"[" * 60_000}, listed=False),
    "a pickle": lambda path, all_: put(path, all_ | {
        "adapter/adapter_config.json": b'{"r": 4}', "adapter/adapter_model.safetensors": b"\x80\x04pickle",
        "adapter/MANIFEST.json": b'{"step": 3}'}),
}  # fmt: skip


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_file_is_refused_in_one_line_and_leaves_nothing(
    store: RunStore, config: Config, tmp_path: Path, kind: str
) -> None:
    entries = entries_of(written(finished(store, config("a")), tmp_path / "good.zip"))
    path, elsewhere = tmp_path / "bad.luthier.zip", Locations(tmp_path / "elsewhere")
    HOSTILE[kind](path, entries)
    with pytest.raises(Fault) as caught:
        open_run_file(path, elsewhere)
    assert caught.value.code == "run.file", caught.value
    assert "\n" not in str(caught.value)
    assert list(elsewhere.runs.iterdir()) == []
    assert not (tmp_path / "out.txt").exists()
    assert not Path("/tmp/luthier-out.txt").exists()


def test_settings_of_a_strangers_file_lead_nowhere(store: RunStore, config: Config, tmp_path: Path) -> None:
    entries = entries_of(written(finished(store, config("a")), tmp_path / "good.zip"))
    text = RunConfig(data=DataChoice(path="/etc/passwd"), resume_from="2026-11-20_2243_other_k3f9").model_dump_json()
    evil = put(tmp_path / "evil.zip", entries, **{"run.yaml": text.encode(), "asked.json": b"{}", "marks.json": b"["})
    folder = JobFolder(store.locations.runs / open_run_file(evil, store.locations))
    opened = read_opened(folder)
    assert opened is not None
    assert (folder.config().data.path, folder.config().resume_from, opened.run_id) == ("passwd", "", "")
    assert not (folder.path / "asked.json").exists()
    newer = json.dumps({"version": 9, "files": {}}).encode()
    with pytest.raises(RunError, match="newer version"):
        open_run_file(put(tmp_path / "new.zip", entries | {run_file.CONTENTS: newer}, listed=False), store.locations)
    link = tmp_path / "link.zip"
    link.symlink_to(evil)
    with pytest.raises(Fault):
        open_run_file(link, store.locations)


def test_the_command_line_packs_and_opens(
    store: RunStore, config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, home = finished(store, config("a")), str(store.locations.home)
    monkeypatch.chdir(tmp_path)
    assert main(["pack", folder.name, "--home", home]) == 0
    assert capsys.readouterr().out == "written   a.luthier.zip\n"
    elsewhere = str(tmp_path / "elsewhere")
    assert main(["open", "a.luthier.zip", "--home", elsewhere]) == 0
    run_id = capsys.readouterr().out.split()[-1]
    assert RunStore(Locations(Path(elsewhere))).record(run_id).state == "finished"
    assert main(["pack", folder.name, "--adapter", "--out", "b.zip", "--home", home]) == 1
    assert "without the adapter" in capsys.readouterr().err
    assert not Path("b.zip").exists()
    lock = FileLock(folder.supervisor_lock)
    lock.acquire()
    folder.events.write_bytes(b"")
    assert main(["pack", folder.name, "--home", home]) == 1
    lock.release()
    assert "at work" in capsys.readouterr().err
