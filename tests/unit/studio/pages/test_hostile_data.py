"""What is never data, by every name and by every way in: nothing of it is read, and nothing of it stays.

The studio's own files lie in the root folder, the system's and a sparse one beside it; each is asked for by path, link,
hard link and detour, through window, command line, mixture, Start and a resumed run.
"""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from core.contract.config import DataChoice, RunConfig
from core.contract.errors import DataError, Fault
from core.data.files.admission import admitted
from core.data.files.keep import keep_file
from core.data.service.checked import checked
from core.data.service.data_service import DataService
from core.machine.locations import Locations
from core.runs.control.prepare import prepare

SECRET = "s3cret-of-the-studio"
RUN = "2026-11-20_2243_test_k3f9"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Locations:
    """A root with the files that a studio and a run leave there."""
    locations = Locations(tmp_path_factory.mktemp("root") / "home").make()
    for place in ("studio.json", "sessions.json", "draft.json", "cache/x.jsonl", f"runs/{RUN}/rows.json"):
        (locations.home / place).parent.mkdir(parents=True, exist_ok=True)
        (locations.home / place).write_text(json.dumps({"secret": SECRET}) + "\n")
    return locations


@pytest.fixture(scope="module")
def services(home: Locations) -> Iterator[list[DataService]]:
    """The data room as the window has it, and as the command line has it."""
    made = [DataService(home, guarded=True), DataService(home)]
    yield made
    for service in made:
        service.close()


def never_data(home: Locations, beside: Path) -> list[Path]:
    """The root's own files, and others that are no data, under all their names."""
    secret, run = home.studio, home.runs / RUN / "rows.json"
    (beside / "link.jsonl").symlink_to(secret)
    (beside / "rows").symlink_to(home.home)
    (beside / "hard.jsonl").hardlink_to(secret)
    (beside / "hard-run.jsonl").hardlink_to(run)
    (home.data / "hard.jsonl").unlink(missing_ok=True)
    (home.data / "hard.jsonl").hardlink_to(home.sessions)
    (home.uploads / "link.jsonl").unlink(missing_ok=True)
    (home.uploads / "link.jsonl").symlink_to("../studio.json")
    (beside / "environ.jsonl").symlink_to("/proc/self/environ")
    (beside / "shadow.txt").symlink_to("/etc/shadow")
    os.mkfifo(beside / "pipe.jsonl")
    with (beside / "sparse.jsonl").open("wb") as file:
        file.write(b'{"text": "a"}\n')
        file.truncate(6 << 30)
    names = [path for path in home.home.rglob("*") if path.is_file() and path.name != "hard.jsonl"]
    names += [home.data / "hard.jsonl", home.uploads / "link.jsonl", home.data / ".." / "studio.json"]
    names += [Path(f"/proc/self/root{secret}"), Path("/proc/self/environ"), Path("/proc/cpuinfo"), Path("/dev/zero")]
    names += [path for path in beside.iterdir() if path.name != "rows"] + [beside / "rows" / "studio.json"]
    return names


def lying(folder: Path) -> set[str]:
    return {str(path) for path in folder.rglob("*")}


def ways(home: Locations, services: list[DataService]) -> Iterator[Callable[[Path], object]]:
    """Every way by which a path becomes data."""
    choice = DataChoice(layout="text", columns={"text": "secret"})
    for service in services:
        yield lambda path, service=service: service.columns(path)
        yield lambda path, service=service: service.report(path, choice)
        yield lambda path, service=service: service.first_look(path, choice)
        yield lambda path, service=service: service.mix([(path, choice, 1.0)], "mixed", 1)
        yield lambda path, service=service: prepare(
            RunConfig(data=choice.model_copy(update={"path": str(path)})), home, service
        )
    yield lambda path: keep_file(path, home)
    yield lambda path: admitted(path, home.home)  # what a worker asks, also of a run that is resumed


def test_no_way_reads_or_keeps_what_is_no_data(home: Locations, services: list[DataService], tmp_path: Path) -> None:
    names = never_data(home, tmp_path)
    before = lying(home.data)
    assert len(names) > 15
    for name in names:
        said = set()
        for number, way in enumerate(ways(home, services)):
            if name.name == "shadow.txt" and number > 4:
                continue  # a person's own link to a plain file, followed; that it is no data only its reader says
            with pytest.raises(Fault) as caught:
                way(name)
            assert SECRET not in str(caught.value)
            said |= {caught.value.message} if number < 5 else set()
        assert len(said) == 1, (name, said)  # the window tells none apart
    assert lying(home.data) == before


ROWS = '{"prompt": "a", "completion": "b"}\n' * 2


def test_a_persons_own_link_is_followed_and_kept_as_what_it_leads_to(
    home: Locations, services: list[DataService], tmp_path: Path
) -> None:
    (tmp_path / "rows.jsonl").write_text(ROWS)
    (tmp_path / "twice.jsonl").hardlink_to(tmp_path / "rows.jsonl")
    (tmp_path / "link.txt").symlink_to(tmp_path / "twice.jsonl")
    for service in services:
        assert service.report(tmp_path / "link.txt", DataChoice()).layout == "prompt_completion"
    assert keep_file(tmp_path / "link.txt", home).name == "twice.jsonl"


BLOB = "0a1b2c3d4e5f" * 4
"""The name of a file in a cache that names files by their content."""
LINKED = {
    "train.csv": "prompt,completion\na,b\nc,d\n",
    "train.tsv": "prompt\tcompletion\na\tb\nc\td\n",
    "train.txt": "one\ntwo\n",
    "train.jsonl": ROWS,
    "train.json": '[{"prompt": "a", "completion": "b"}, {"prompt": "c", "completion": "d"}]',
}


@pytest.mark.parametrize("name", LINKED)
def test_a_link_into_a_cache_gives_its_name_to_what_it_leads_to(
    home: Locations, services: list[DataService], tmp_path: Path, name: str
) -> None:
    (tmp_path / BLOB).write_text(LINKED[name])
    link = tmp_path / name
    link.symlink_to(BLOB)
    kept = keep_file(link, home)
    assert kept.name == name
    for service in services:
        report = service.report(link, DataChoice())
        assert (report.path, report.usable, report.sha256) == (str(link), 2, kept.sha256)
        assert report.columns == service.columns(link) == service.report(kept.path, DataChoice()).columns
    assert checked(link, DataChoice(), home)[0].path == str(link)


def test_one_file_under_two_names_is_read_as_each_says(services: list[DataService], tmp_path: Path) -> None:
    (tmp_path / BLOB).write_text(LINKED["train.csv"])
    for name in ("train.csv", "train.txt"):
        (tmp_path / name).symlink_to(BLOB)
    for service in services:
        for name, layout, rows in (("train.csv", "prompt_completion", 2), ("train.txt", "text", 3)) * 2:
            report = service.report(tmp_path / name, DataChoice())
            assert (report.layout, report.rows) == (layout, rows)


def refused(path: Path, home: Path) -> DataError:
    with pytest.raises(DataError) as caught:
        admitted(path, home)
    return caught.value


def test_what_the_command_line_refuses_it_explains(home: Locations, tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").touch()
    for path, code in (
        (home.studio, "data.ours"), (Path("/proc/self/environ"), "data.system"), (tmp_path / "no", "data.missing"),
        (tmp_path, "data.missing"), (tmp_path / "empty.jsonl", "data.empty"),
    ):  # fmt: skip
        error = refused(path, home.home)
        assert error.code == code
        assert "\n" not in str(error)


@pytest.mark.parametrize("leads_to", ["../large disk", "large"])
def test_data_may_be_a_link_to_another_disk_or_to_another_folder_of_the_root_folder(
    tmp_path: Path, leads_to: str
) -> None:
    locations = Locations(tmp_path / "home")
    locations.home.mkdir()
    (locations.home / leads_to).mkdir()
    locations.data.symlink_to(leads_to)
    (tmp_path / "rows.jsonl").write_text(ROWS)
    kept = keep_file(tmp_path / "rows.jsonl", locations.make()).path
    assert admitted(kept, locations.home) == kept.resolve()
    (tmp_path / "twice.jsonl").hardlink_to(kept)
    assert admitted(kept, locations.home) == kept.resolve()
    locations.studio.write_text(SECRET)
    (locations.data / "secret.jsonl").hardlink_to(locations.studio)
    assert "one of Luthier's own" in refused(locations.data / "secret.jsonl", locations.home).message


@pytest.mark.parametrize("leads_to", [".", ".."])
def test_a_link_does_not_make_the_whole_root_folder_data(tmp_path: Path, leads_to: str) -> None:
    locations = Locations(tmp_path / "home")
    locations.home.mkdir()
    locations.data.symlink_to(leads_to)
    locations.studio.write_text(SECRET)
    for path in (locations.studio, locations.data / "studio.json", locations.data / "home" / "studio.json"):
        refused(path, locations.home)


def test_a_file_beside_ours_is_told_where_data_may_lie(tmp_path: Path) -> None:
    """The root folder may be somebody's work folder too: such a file is not one of ours."""
    locations = Locations(tmp_path / "work").make()
    mine = locations.home / "sets" / "mine.jsonl"
    mine.parent.mkdir()
    mine.write_text(ROWS)
    error = refused(mine, locations.home)
    assert error.code == "data.ours"
    assert f"outside of Luthier's folder {locations.home} (or in its data/ or uploads/), found {mine}" in error.message
