"""The declarations of runtime/kernels/ort_abi.h against ONNX Runtime's own header, where one is installed."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OURS = ROOT / "runtime" / "kernels" / "ort_abi.h"
HEADER = "onnxruntime_c_api.h"
STRUCTS = ("OrtApi", "OrtApiBase", "OrtCustomOp")

SAME = """
template <typename... T> struct List {};
template <typename A, typename B> struct Same : std::is_same<A, B> {};
template <typename A, typename B> struct Same<A*, B*> : Same<A, B> {};
template <typename A, typename B> struct Same<const A, const B> : Same<A, B> {};
template <typename A, typename... As, typename B, typename... Bs>
struct Same<List<A, As...>, List<B, Bs...>>
    : std::bool_constant<Same<A, B>::value && Same<List<As...>, List<Bs...>>::value> {};
template <typename R, typename... As, typename S, typename... Bs>
struct Same<R(As...), S(Bs...)> : Same<List<R, As...>, List<S, Bs...>> {};
template <typename R, typename... As, typename S, typename... Bs>  // what is noexcept in one only is not the same
struct Same<R(As...) noexcept, S(Bs...) noexcept> : Same<List<R, As...>, List<S, Bs...>> {};
"""


@pytest.fixture(scope="module")
def headers() -> Path:
    """The folder of ONNX Runtime's header."""
    system = [Path(root) / "onnxruntime" for root in ("/usr/include", "/usr/local/include", "/opt/homebrew/include")]
    fetched = sorted((ROOT / "build" / "onnxruntime-headers").rglob(HEADER))
    for folder in [*(path.parent for path in fetched), *system, Path(sys.prefix) / "include" / "onnxruntime"]:
        if (folder / HEADER).is_file():
            return folder
    pytest.skip(f"ONNX Runtime's header {HEADER} is not installed (on Debian: libonnxruntime-dev)")


def checks(ours: str) -> list[str]:
    """C++ conditions that hold if the declarations `ours`, in the namespace `ours`, agree with ONNX Runtime's."""
    handles = re.findall(r"^struct (\w+);", ours, re.MULTILINE)
    enums = dict(re.findall(r"^enum (\w+) \{(.*?)\};", ours, re.MULTILINE | re.DOTALL))
    names = sorted({*handles, *STRUCTS, *enums})
    same = [f"template <> struct Same<ours::{name}, ::{name}> : std::true_type {{}};" for name in names]
    conditions = ["ours::ORT_VERSION <= ORT_API_VERSION", "sizeof(ours::OrtCustomOp) <= sizeof(::OrtCustomOp)"]
    conditions += ["Same<ours::OrtLoggingFunction, ::OrtLoggingFunction>::value"]
    for name, body in enums.items():
        values = re.findall(r"^\s*(\w+)|, (\w+)", body, re.MULTILINE)
        conditions.append(f"sizeof(ours::{name}) == sizeof(::{name})")
        conditions += [f"int(ours::{value}) == int(::{value})" for value in map("".join, values)]
    for struct in STRUCTS:
        [body] = re.findall(rf"^struct {struct} \{{(.*?)^\}};", ours, re.MULTILINE | re.DOTALL)
        members = [
            "".join(names) for names in re.findall(r"^  \w.*?\(\*(\w+)\)\(|^  uint32_t (\w+);", body, re.MULTILINE)
        ]
        assert len(members) + body.count("Unused<") == body.count(";"), f"members of {struct} that are not checked"
        for member in members:
            conditions.append(f"offsetof(ours::{struct}, {member}) == offsetof(::{struct}, {member})")
            conditions.append(f"Same<decltype(ours::{struct}::{member}), decltype(::{struct}::{member})>::value")
    return [*same, *(f'static_assert({condition}, "");' for condition in conditions)]


def compile_checks(ours: str, headers: Path, folder: Path) -> str:
    """What the compiler says of the checks of these declarations: nothing if they agree."""
    compiler = shutil.which("c++") or shutil.which("g++") or pytest.skip("no C++ compiler")
    (folder / "ort_abi.h").write_text(ours)
    source = folder / "checks.cc"
    lines = ["#include <cstddef>", "#include <cstdint>", "#include <type_traits>", f"#include <{HEADER}>"]
    lines += ["namespace ours {", '#include "ort_abi.h"', "}", SAME, *checks(ours)]
    source.write_text("\n".join(lines) + "\n")
    command = [compiler, "-std=c++17", "-w", "-fsyntax-only", "-isystem", headers, source]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stderr


def test_the_declarations_are_those_of_onnx_runtime(headers: Path, tmp_path: Path) -> None:
    assert compile_checks(OURS.read_text(), headers, tmp_path) == ""


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        pytest.param("Unused<29, 29>", "Unused<29, 30>", id="position"),
        pytest.param("const char* key, const char* value", "const char* key, char* value", id="const"),
        pytest.param("OrtAllocator* allocator, void* memory", "OrtEnv* allocator, void* memory", id="handle"),
        pytest.param("OrtRunOptions* options, int level", "OrtRunOptions* options, int64_t level", id="parameter"),
        pytest.param("OrtEnv* env);", "OrtEnv* env, int more);", id="count"),
        pytest.param("OrtRunOptions** out) noexcept;", "OrtRunOptions** out);", id="noexcept"),
        pytest.param("OrtErrorCode (*GetErrorCode)", "int (*GetErrorCode)", id="result"),
        pytest.param("  ORT_NO_MODEL,\n", "", id="enumerator"),
        pytest.param("ORT_ENABLE_ALL = 99", "ORT_ENABLE_ALL = 98", id="value"),
        pytest.param("OrtMemTypeDefault = 0", "OrtMemTypeDefault = 1", id="value on one line"),
        pytest.param("  void (*KernelDestroy)(void* kernel);\n", "", id="member"),
    ],
)
def test_a_wrong_declaration_is_seen(headers: Path, tmp_path: Path, right: str, wrong: str) -> None:
    text = OURS.read_text()
    assert right in text
    assert "static assertion failed" in compile_checks(text.replace(right, wrong, 1), headers, tmp_path)


def test_every_gap_of_the_table_names_its_first_entry() -> None:
    gaps = re.findall(r"Unused<(\d+), (\d+)> unused_(\d+);", OURS.read_text())
    assert gaps and all(first == name and int(first) <= int(last) for first, last, name in gaps)
