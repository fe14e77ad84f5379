"""Imports go one way, the runtime stands alone, and the pages about the project are accurate."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "xformc"
BASE = {"errors", "extras", "files", "format", "terminal", "version"}
GRAPHS = {"compiler.graph", "compiler.quantize", "compiler.ops", "compiler.results", "compiler.passes"}
PROGRAMS = GRAPHS | {"compiler.spec", "compiler.shortlist", "compiler.program", "compiler.pipeline"}
COMPILER = PROGRAMS | {"compiler", "compiler.search", "compiler.backends", "compiler.certify", "compiler.weight_files"}

MAY_USE = {
    "errors": set[str](),
    "extras": set[str](),
    "files": {"errors"},
    "terminal": set[str](),
    "api": PROGRAMS | {"compiler.backends", "runtime", "trainer", "specs"},
    "format": set[str](),
    "compiler.graph": set[str](),
    "compiler.quantize": {"compiler.graph"},
    "compiler.ops": {"compiler.graph", "compiler.quantize"},
    "compiler.results": {"compiler.graph", "compiler.ops"},
    "compiler.spec": {"compiler.graph", "compiler.ops", "compiler.results", "specs"},
    "compiler.passes": {"compiler.graph", "compiler.quantize", "compiler.ops", "compiler.results"},
    "compiler.shortlist": set[str](),
    "compiler.program": GRAPHS | {"compiler.spec", "compiler.shortlist"},
    "compiler.pipeline": PROGRAMS,
    "compiler": {"compiler.pipeline"},
    "compiler.weight_files": {"compiler.graph"},
    "compiler.search": GRAPHS,
    "compiler.backends": PROGRAMS | {"compiler.search", "runtime"},
    "compiler.certify": COMPILER | {"runtime"},
    "compiler.explain": COMPILER | {"runtime"},
    "compiler.build": COMPILER | {"runtime"},
    "runtime": set[str](),
    "triton": {"runtime"},
    "trainer": COMPILER | {"compiler.build", "runtime", "specs"},
    "imports": COMPILER | {"runtime", "trainer", "version"},
    "exports": COMPILER | {"imports", "runtime", "specs", "trainer"},
    "commands": COMPILER
    | {"compiler.build", "compiler.explain", "runtime", "triton", "trainer", "imports", "exports", "specs"}
    | {"verification"},
    "cli": {"commands"},
    "__main__": {"cli"},
    "xformc_run": set[str](),
    "specs": set[str](),
    "verification": {"compiler.certify", "runtime"},
    "version": {"api", "runtime", "trainer", "verification"},
}
BARE = {"numpy", "onnxruntime", "sentencepiece"}
WITH_EXTRAS = {"PIL", "llguidance", "outlines_core", "sacrebleu", "zstandard"}
FORBIDDEN = [
    "torch",
    "PIL",
    "onnx",
    "pydantic",
    "sacrebleu",
    "yaml",
    "safetensors",
    "xformc.compiler",
    "xformc.trainer",
]


def part_of(module: str) -> str:
    """`compiler.ops` of `xformc.compiler.ops.linear`; `version` of the root, which names the API."""
    names = module.split(".")[1:]
    if not names:
        return "version"
    return ".".join(names[:2]) if names[0] == "compiler" else names[0]


def modules() -> Iterator[tuple[str, Path]]:
    """Every module of the package by its name."""
    for top in (
        PACKAGE,
        *(
            PACKAGE / name
            for name in (
                "compiler",
                "runtime",
                "trainer",
                "specs",
                "commands",
                "format",
                "imports",
                "exports",
                "triton",
            )
        ),
    ):
        for path in sorted(top.glob("*.py") if top == PACKAGE else top.rglob("*.py")):
            names = path.relative_to(PACKAGE).with_suffix("").parts
            yield ".".join(["xformc", *(name for name in names if name != "__init__")]), path


def imports(path: Path) -> Iterator[str]:
    """The modules that a file imports, at its top or inside a function."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                yield name if is_module(name) else str(node.module)


def is_module(name: str) -> bool:
    if not name.startswith("xformc."):
        return False
    path = PACKAGE.joinpath(*name.split(".")[1:])
    return path.is_dir() or path.with_suffix(".py").is_file()


def test_imports_go_one_way() -> None:
    wrong = [
        f"{module} imports {name}"
        for module, path in modules()
        for name in imports(path)
        if name.split(".")[0] == "xformc"
        and part_of(name) not in {part_of(module)} | MAY_USE[part_of(module)] | (BASE - {part_of(module)})
    ]
    assert wrong == []


def test_rooms_of_the_runtime_import_one_way() -> None:
    uses = dict[str, set[str]]()
    for module, path in modules():
        if (room := room_of(module)) is not None:
            uses.setdefault(room, set()).update(found for name in imports(path) if (found := room_of(name)) is not None)
    order = TopologicalSorter({room: used - {room} for room, used in uses.items()})
    assert len(list(order.static_order())) == len(uses)  # raises CycleError


def room_of(module: str) -> str | None:
    """The folder of a module of the runtime; None for those beside the folders."""
    names = module.split(".")[1:]
    return names[1] if len(names) > 2 and names[0] == "runtime" else None


def test_every_part_is_in_the_table() -> None:
    assert {part_of(module) for module, _ in modules()} - set(MAY_USE) == set()


def test_runtime_names_no_package_but_its_own() -> None:
    found = {
        name.split(".")[0]
        for module, path in modules()
        if part_of(module) in {"runtime", "errors", "files", "format"}
        for name in imports(path)
    }
    assert found - set(sys.stdlib_module_names) - {"xformc"} == BARE | WITH_EXTRAS


def test_runtime_translates_without_the_compilers_packages(copy_engine: Path) -> None:
    code = f"""
import sys
from xformc.runtime import load
assert load({str(copy_engine)!r}, threads=1).translate(["hello world"])[0][0].text == "hello world"
import xformc.cli
print([name for name in {FORBIDDEN!r} if name in sys.modules])
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (found.stdout, found.stderr) == ("[]\n", "")


def test_nothing_is_reported_to_anyone(copy_engine: Path, tmp_path: Path) -> None:
    code = f"from xformc.runtime import load; load({str(copy_engine)!r}, threads=1).translate(['hello world'])"
    rest = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
    subprocess.run([sys.executable, "-c", code], check=True, env={**rest, "XDG_CACHE_HOME": str(tmp_path)})
    assert list(tmp_path.iterdir()) == []


def test_the_links_lead_to_the_folders() -> None:
    for name in ("compiler", "runtime", "trainer", "specs"):
        assert (PACKAGE / name).is_symlink()
        assert (PACKAGE / name).resolve() == ROOT / name


PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS: dict[str, list[str]] = PYPROJECT["project"]["optional-dependencies"]
GROUPS: dict[str, list[str]] = {
    name: [one for one in group if isinstance(one, str)] for name, group in PYPROJECT["dependency-groups"].items()
}
DEPENDENCIES: dict[str, list[str]] = {"runtime": PYPROJECT["project"]["dependencies"], **EXTRAS, **GROUPS}
LOCK = (ROOT / "requirements" / "dev.txt").read_text(encoding="utf-8")


def packages(requirements: list[str]) -> set[str]:
    return {Requirement(one).name for one in requirements} - {"xformc"}


def test_the_dependencies_page_lists_what_pyproject_requires() -> None:
    page = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    sections = {
        title.split(" ")[0].lower(): set(re.findall(r"^\| ([a-z0-9_-]+) \|", body, re.MULTILINE)) - {"package"}
        for title, body in re.findall(r"^## (.+)\n((?:(?!^## ).*\n?)*)", page, re.MULTILINE)
    }
    described = {name: packages for name, packages in sections.items() if packages}
    assert described == {name: packages(requirements) for name, requirements in DEPENDENCIES.items()}


def test_every_dependency_has_a_lower_bound() -> None:
    every = [Requirement(one) for requirements in DEPENDENCIES.values() for one in requirements]
    assert [str(one) for one in every if one.name != "xformc" and ">=" not in str(one.specifier)] == []


def test_the_lock_fits_what_pyproject_requires() -> None:
    locked = re.findall(r"^([a-z0-9-]+)==([^ ;]+)(?: ; (.+?))? \\$", LOCK, re.MULTILINE)
    versions = {name: version for name, version, marker in locked if not marker or Marker(marker).evaluate()}
    parts = ("runtime", "cpu", "build", "train", "demo", "report", "test", "dev")
    wanted = [Requirement(one) for part in parts for one in DEPENDENCIES[part]]
    missing = [
        str(one)
        for one in wanted
        if one.name not in {"xformc", "torch"}
        and not one.specifier.contains(versions.get(one.name.replace("_", "-"), "0"))
    ]
    assert missing == [], "the lock is older than pyproject.toml: make lock"


def test_the_lock_names_no_build_of_pytorch_and_no_place() -> None:
    assert re.findall(r"^(?:torch|triton|cuda|nvidia)\S*|://|^--?\w.*", LOCK, re.MULTILINE) == []


def test_the_kernels_have_the_version_of_the_package() -> None:
    from xformc import __version__

    text = (ROOT / "runtime" / "CMakeLists.txt").read_text(encoding="utf-8")
    assert f"project(xformc VERSION {__version__} " in text


TARGETS = [
    "setup",
    "lock",
    "kernels",
    "fix",
    "check",
    "test",
    "test-matrix",
    "test-lowest",
    "test-sanitize",
    "demo",
    "zoo",
]


@pytest.mark.parametrize("target", [*TARGETS, "bench", "docs"])
def test_make_lists_its_targets(target: str) -> None:
    found = subprocess.run(["make", "-C", str(ROOT)], capture_output=True, text=True, check=True)
    assert re.search(rf"^{target} +\S", found.stdout, re.MULTILINE)
