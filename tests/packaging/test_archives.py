"""What the sdist contains, and the wheels that compile nothing; .ci/run builds and uses the one that does."""

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "xformc"
BESIDE = {"pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE", "PKG-INFO"}


def built(folder: Path, kind: str, **variables: str) -> tuple[Path, str]:
    """The archive that the build backend makes in `folder`, and what it printed."""
    pytest.importorskip("scikit_build_core")
    code = f"import scikit_build_core.build as build; build.build_{kind}({str(folder)!r})"
    command, environment = [sys.executable, "-c", code], {**os.environ, **variables}
    pipe, both = subprocess.PIPE, subprocess.STDOUT
    done = subprocess.run(command, cwd=ROOT, stdout=pipe, stderr=both, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout
    return next(folder.glob("xformc-*")), done.stdout


def package_files() -> set[str]:
    """The files of the package, with the folders that its links lead to."""
    parts = [PACKAGE, *(path.resolve() for path in PACKAGE.iterdir() if path.is_symlink())]
    return {
        str(Path("xformc") / ("" if part == PACKAGE else part.name) / path.relative_to(part))
        for part in parts
        for path in part.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_the_sdist_has_the_files_that_the_links_lead_to(tmp_path: Path) -> None:
    with tarfile.open(built(tmp_path, "sdist")[0]) as archive:
        members = archive.getmembers()
    names = {member.name.partition("/")[2] for member in members}
    assert [member.name for member in members if not member.isfile()] == []
    assert names == {f"src/{name}" for name in package_files()} | BESIDE


def test_without_a_compiler_the_wheel_has_all_but_the_library(tmp_path: Path) -> None:
    archive, output = built(tmp_path, "wheel", CC="no-compiler", CXX="no-compiler")
    assert archive.name.endswith("-py3-none-any.whl")
    assert "without the C library and native engines" in output.splitlines()[-1]
    names = set(zipfile.ZipFile(archive).namelist())
    assert {name for name in names if ".dist-info/" not in name} == package_files()


def test_an_editable_install_compiles_nothing(tmp_path: Path) -> None:
    archive, _ = built(tmp_path, "editable", CC="no-compiler", CXX="no-compiler")
    assert archive.name.endswith("-py3-none-any.whl")
    links = zipfile.ZipFile(archive).read("_editable_skbc_xformc.pth").decode()
    assert str(PACKAGE.parent) in links.splitlines()
