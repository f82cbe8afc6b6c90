"""House rules that no linter knows: budgets, names, forbidden calls, imports without effects, nothing from outside."""

import ast
import gc
import importlib
import os
import re
import subprocess
import sys
import tomllib
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from core.contract.forms import FORMS
from core.contract.methods import METHODS
from core.contract.optimisers import OPTIMISERS
from core.contract.tasks import LEARNS
from core.contract.weight_forms import WEIGHT_FORMS
from core.machine.imports import without_card
from core.models.encoders import ENCODERS
from core.models.families import FAMILIES

ROOT = Path(__file__).resolve().parents[1]
SOURCES = sorted([*(ROOT / "core").rglob("*.py"), *(ROOT / "studio").rglob("*.py"), ROOT / "launcher.py"])
TEXTS = [path for path in SOURCES + sorted(ROOT.glob("*.md")) if path.exists()]
FILE_WALL, FUNCTION_WALL, PARAMETER_WALL = 400, 60, 6
MOST_FILES = 14
"""Python files of one folder."""
ATTIC = {"utils", "util", "helpers", "helper", "common", "manager", "handler", "misc"}
FORBIDDEN_CALLS = {
    "eval", "exec", "compile", "__import__", "builtins.eval", "builtins.exec", "importlib.import_module",
    "import_module", "yaml.load", "yaml.load_all", "yaml.unsafe_load", "yaml.full_load", "torch.load", "torch.hub.load",
    "pandas.read_pickle", "os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput",
}  # fmt: skip
FORBIDDEN_MODULES = {"pickle", "_pickle", "cPickle", "marshal", "shelve", "dill", "joblib", "cloudpickle", "jsonpickle",
                     "code", "codeop", "runpy", "imp"}  # fmt: skip
FORBIDDEN_WORDS = {"shell", "trust_remote_code", "allow_pickle", "weights_only"}
"""Keywords that may be said only to say no; ``weights_only`` not at all, since torch.load is not called."""
LIGHT = [
    "studio.server.app", "core.cli.commands", "core.runs.supervise.supervisor", "core.runs.control.store",
    "core.runs.control.prepare", "core.data.service.data_service", "core.estimate", "core.models.catalog",
    "core.models.hub.client", "core.machine.doctor.examine", "core.chat.client", "core.proof.probe.client",
]  # fmt: skip
HEAVY = {"torch", "transformers", "peft", "trl", "bitsandbytes", "datasets", "accelerate", "pyarrow"}


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """All that stands in a file, walked through once for all rules."""
    return tuple(ast.walk(tree(path)))


def functions() -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Every function, and where it stands."""
    for path in SOURCES:
        for node in nodes(path):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield f"{relative(path)}:{node.lineno} {node.name}", node


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def module_name(path: Path) -> str:
    return relative(path)[:-3].replace("/", ".").removesuffix(".__init__")


@cache
def imports() -> dict[str, set[str]]:
    """Each module of ours, and those of ours that its file names in any import, for type checkers too."""
    modules = {module_name(path): path for path in SOURCES}
    arrows = {}
    for name, path in modules.items():
        named = set()
        for node in nodes(path):
            if isinstance(node, ast.ImportFrom) and node.module:
                named |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
            elif isinstance(node, ast.Import):
                named |= {alias.name for alias in node.names}
        arrows[name] = (named & modules.keys()) - {name}
    return arrows


def test_no_two_files_import_each_other() -> None:
    """Nor do several in a circle: ``CycleError`` names them."""
    TopologicalSorter(imports()).prepare()


def test_nothing_is_decided_by_a_name_that_a_table_holds() -> None:
    """What differs between methods, what learns, optimisers, forms of exports and weights, and model families is a
    column of their tables (``core/contract/methods.py``, ``tasks.py``, ``optimisers.py``, ``forms.py``,
    ``weight_forms.py``, ``core/models/families.py``, ``encoders.py``), never a comparison with a name or a list."""
    tables = (METHODS, LEARNS, FORMS, WEIGHT_FORMS, FAMILIES, ENCODERS, OPTIMISERS)
    names = {name for table in tables for name in table} - {"none", "everything"}

    def held(node: ast.AST) -> set[object]:
        return {side.value for side in ast.walk(node) if isinstance(side, ast.Constant)} & names

    decided = [
        f"{relative(path)}:{node.lineno} {ast.unparse(node)[:80]}"
        for path in SOURCES
        for node in nodes(path)
        if (isinstance(node, ast.Compare) and held(node))
        or (isinstance(node, ast.Set | ast.List | ast.Tuple) and len(held(node) & {*FAMILIES}) > 1)
    ]
    assert decided == []


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "README.md"])
def test_what_a_page_points_to_is_there(page: str) -> None:
    named = re.findall(r"`((?:core|studio|tests|presets|assets)/[\w/.-]*\w)/?`", (ROOT / page).read_text("utf-8"))
    assert named
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_a_folder_has_few_entries() -> None:
    def rooms(top: str) -> list[str]:
        return [path.name for path in (ROOT / top).iterdir() if not path.name.startswith(("_", "."))]

    assert len(rooms("core")) <= 16
    assert len(rooms("studio")) <= 8
    crowds = Counter(relative(path.parent) for path in SOURCES)
    assert {folder: count for folder, count in crowds.items() if count > MOST_FILES} == {}


def test_tests_stand_in_folders_named_as_their_rooms() -> None:
    """Counted by their files: what a checkout keeps of folders that went (their ``__pycache__``) is none."""
    rooms = {path.relative_to(ROOT / "core").parts[0].removesuffix(".py") for path in (ROOT / "core").rglob("*.py")}
    tests = ROOT / "tests" / "unit"
    folders = {path.relative_to(tests).parts[0] for path in tests.glob("*/**/*.py")}
    rooms.discard("__init__")
    assert {name for name in folders if not name.startswith("studio")} == rooms


def test_what_runs_alone_by_default_is_where_the_suite_looks_for_it() -> None:
    marked = {relative(path) for path in (ROOT / "tests").rglob("test_*.py") if "mark.alone" in path.read_text("utf-8")}
    outside = {name for name in marked if not name.startswith("tests/e2e/") and name != "tests/test_architecture.py"}
    assert {
        name for name in outside if "[pytest.mark.slow, pytest.mark.alone]" not in (ROOT / name).read_text()
    } == set()


def test_files_functions_and_parameters_stay_below_the_walls() -> None:
    lines = {relative(path): len(path.read_text("utf-8").splitlines()) for path in SOURCES}
    assert {name: count for name, count in lines.items() if count > FILE_WALL} == {}
    sizes = {name: (node.end_lineno or 0) - node.lineno + 1 for name, node in functions()}
    assert {name: size for name, size in sizes.items() if size > FUNCTION_WALL} == {}
    taken = {
        name: [word.arg for word in (*node.args.posonlyargs, *node.args.args) if word.arg not in ("self", "cls")]
        for name, node in functions()
        # Triton's kernels take pointers and strides, autograd's Functions what their op takes.
        if node.name not in ("forward", "backward") and not any("jit" in ast.unparse(d) for d in node.decorator_list)
    }
    assert {name: words for name, words in taken.items() if len(words) > PARAMETER_WALL} == {}


def test_no_attic() -> None:
    assert [relative(path) for path in SOURCES if path.stem in ATTIC or path.parent.name in ATTIC] == []


def forbidden(written: Iterable[ast.AST]) -> Iterator[str]:
    """What could run a string, a pickle or a shell: calls by name, modules, and keywords that are not a plain no."""
    for node in written:
        if isinstance(node, ast.Call) and ast.unparse(node.func) in FORBIDDEN_CALLS:
            yield f"{node.lineno} {ast.unparse(node.func)}"
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            names = []
        yield from (f"{node.lineno} {name}" for name in names if name.split(".")[0] in FORBIDDEN_MODULES)
        yield from (f"{node.lineno} {name}" for name in names if name in FORBIDDEN_CALLS)
        said = [(word.arg, word.value) for word in node.keywords] if isinstance(node, ast.Call) else []
        if isinstance(node, ast.Dict):
            said = [(getattr(key, "value", None), value) for key, value in zip(node.keys, node.values, strict=True)]
        for word, value in said:
            if word in FORBIDDEN_WORDS and getattr(value, "value", None) is not False:
                yield f"{value.lineno} {word}"


def test_nothing_runs_a_string_a_pickle_or_a_shell() -> None:
    assert [f"{relative(path)}:{one}" for path in SOURCES for one in forbidden(nodes(path))] == []


@pytest.mark.parametrize(
    "line",
    [
        "eval(text)", "exec(text)", "compile(text, '', 'exec')", "__import__(name)", "importlib.import_module(name)",
        "yaml.load(text, Loader)", "torch.load(path)", "import pickle", "from pickle import loads", "import dill as d",
        "from joblib import load", "import marshal", "import shelve", "from yaml import unsafe_load", "os.system(line)",
        "numpy.load(path, allow_pickle=True)", "subprocess.run(line, shell=True)", "subprocess.run(line, shell=flag)",
        "AutoModel.from_pretrained(name, trust_remote_code=True)", "options = {'trust_remote_code': True}",
        "torch.load(path, weights_only=True)", "from importlib import import_module",
    ],
)  # fmt: skip
def test_what_is_forbidden_is_found(line: str) -> None:
    assert list(forbidden(ast.walk(ast.parse(line))))


@pytest.mark.parametrize(
    "line", ["torch.compile(f)", "re.compile(p)", "f(trust_remote_code=False)", "{'shell': False}"]
)
def test_what_is_harmless_is_not(line: str) -> None:
    assert not list(forbidden(ast.walk(ast.parse(line))))


def test_programs_are_started_in_the_files_that_say_so() -> None:
    """ruff's S603 is silent only where pyproject.toml names the file; each call there has a list of words."""
    rules = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["ruff"]["lint"]
    assert not {"S603", "S607", "S602", "S605"} & set(rules["ignore"])
    named = {file for file, codes in rules["per-file-ignores"].items() if "S603" in codes}
    starting = re.compile(r"subprocess\.(?:run|Popen|call|check_\w+)\(")
    assert {relative(path) for path in SOURCES if starting.search(path.read_text("utf-8"))} == named


def test_no_class_of_another_library_is_patched() -> None:
    """``Class.attribute = …`` on something imported from outside is how runs leak into each other."""
    found = []
    for path in SOURCES:
        outside = {
            alias.asname or alias.name
            for node in nodes(path)
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in HEAVY
            for alias in node.names
            if (alias.asname or alias.name)[:1].isupper()
        }
        for node in nodes(path):
            targets = node.targets if isinstance(node, ast.Assign) else []
            for target in targets:
                if isinstance(target, ast.Attribute) and ast.unparse(target.value) in outside:
                    found.append(f"{relative(path)}:{node.lineno}")
    assert found == []


def test_peft_and_bitsandbytes_are_read_in_one_file() -> None:
    """Attribute names of peft's and bitsandbytes' layers change; one file of core.model knows them."""
    names = re.compile(r"lora_A|lora_B|lora_magnitude_vector|quant_state|Linear4bit|Params4bit")
    readers = {
        relative(path)
        for path in SOURCES
        for node in (nodes(path) if "core/model/" in relative(path) else ())
        if names.fullmatch(getattr(node, "attr", "") or getattr(node, "id", "") or "")
    }
    assert len(readers) == 1, readers


def test_nothing_is_loaded_from_outside() -> None:
    """No CDN, no fonts, no telemetry: assets and pages name no foreign address that a browser would fetch."""
    pattern = re.compile(r"""(?:src|href|url\(|@import|fetch\()\s*[=(]?\s*["'(]?https?://""")
    files = [*(ROOT / "assets").rglob("*.css"), *(ROOT / "assets").rglob("*.js"), *(ROOT / "studio").rglob("*.py")]
    assert [relative(path) for path in files if pattern.search(path.read_text("utf-8"))] == []
    assert any(path.suffix == ".css" for path in files)


def test_the_repository_names_no_private_place() -> None:
    """The folder that this checkout happens to lie in, and whose home it is, are nobody's business."""
    places = {f"{ROOT}/", f"{ROOT.parent}/shared/", f"{Path.home()}/"}
    named = [relative(path) for path in TEXTS if any(place in path.read_text("utf-8") for place in places)]
    assert named == []


def test_light_modules_leave_heavy_libraries_unimported() -> None:
    code = (
        "import sys, importlib\n"
        f"for name in {LIGHT!r}:\n"
        "    importlib.import_module(name)\n"
        f"    if heavy := sorted({HEAVY!r} & set(sys.modules)): sys.exit(f'{{name}} imports {{heavy}}')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_importing_has_no_effects() -> None:
    """Importing every module of ours changes no environment variable, registers no attention, touches no GPU."""
    modules = [module_name(path) for path in SOURCES if path.name not in ("launcher.py", "__main__.py")]
    answer, says = os.pipe()
    child = os.fork()  # where the heavy libraries are imported already: a fresh process takes seconds to do it
    if child == 0:
        try:
            os.write(says, effects_of(modules).encode())
        finally:
            os._exit(0)
    os.close(says)
    with os.fdopen(answer, encoding="utf-8") as told:
        said = told.read()
    os.waitpid(child, 0)
    assert said == "[] [] True"


def effects_of(modules: list[str]) -> str:
    """What importing these does, in a process of its own: whatever they did in this one before is undone first."""
    gc.disable()  # it would look through all of that again and again
    os.environ.update(without_card(os.environ))
    try:
        for name in ("torch", "transformers", "peft", "trl", "bitsandbytes", "gradio"):
            importlib.import_module(name)  # what they do is theirs
        import torch
        from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS as REGISTRY

        for name in [name for name in sys.modules if name.split(".")[0] in ("core", "studio")]:
            del sys.modules[name]
        for name in [name for name in REGISTRY.valid_keys() if "luthier" in name]:
            del REGISTRY._global_mapping[name]
        kept = {name: os.environ.get(name, "") for name in ("PATH", "HOME")}
        os.environ.clear()
        os.environ.update(kept)
        torch.set_num_threads(3)
        for name in modules:
            importlib.import_module(name)
        ours = [name for name in REGISTRY.valid_keys() if "luthier" in name]
        changed = sorted(name for name in {*kept, *os.environ} if kept.get(name) != os.environ.get(name))
        return f"{changed} {ours} {torch.get_num_threads() == 3}"
    except BaseException:
        return traceback.format_exc()[-2000:]
