"""Pushes and pulls by huggingface_hub, against a stand-in of the few calls of the hub's API that small files need."""

import base64
import hashlib
import json
import shutil
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from command_line import CommandLine, mistake

pytest.importorskip("huggingface_hub")
COMMIT = "0123456789abcdef0123456789abcdef01234567"
HOST = "https://huggingface.co"  # of addresses in replies; nothing is sent there


class Hub(BaseHTTPRequestHandler):
    """One public repository, me/model, in memory; `sizes` are those that it says, if they are not the files', and
    `hashes` those of large files."""

    files: dict[str, bytes]
    sizes: dict[str, int]
    hashes: dict[str, str]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/api/repos/create":
            self.reply({"url": f"http://{self.headers['Host']}/me/model", "name": "me/model"})
        elif self.path == "/api/validate-yaml":
            assert json.loads(body)["content"].startswith("---\nlibrary_name: xformc\n")
            self.reply({"errors": [], "warnings": []})
        elif self.path.startswith("/api/models/me/model/preupload/"):
            names = [one["path"] for one in json.loads(body)["files"]]
            self.reply({"files": [{"path": one, "uploadMode": "regular", "shouldIgnore": False} for one in names]})
        else:
            assert self.path.startswith("/api/models/me/model/commit/")
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    self.files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            self.reply({"success": True, "commitOid": COMMIT, "commitUrl": f"{HOST}/me/model/commit/{COMMIT}"})

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        if path.startswith("/api/models/me/model"):
            sizes = {name: len(content) for name, content in self.files.items()} | self.sizes
            siblings: list[dict[str, Any]] = [
                {"rfilename": name, "size": size, "blobId": "b"} for name, size in sizes.items()
            ]
            for one in siblings:
                if one["rfilename"] in self.hashes:
                    one["lfs"] = {"size": one["size"], "sha256": self.hashes[one["rfilename"]], "pointerSize": 9}
            self.reply({"id": "me/model", "sha": COMMIT, "private": False, "siblings": siblings})
        elif path == "/me/model/resolve/main/README.md" and "README.md" in self.files:
            self.reply(self.files["README.md"], {"ETag": '"card"', "X-Repo-Commit": COMMIT})
        elif (name := path.removeprefix(f"/me/model/resolve/{COMMIT}/")) in self.files:
            self.reply(self.files[name], {"ETag": f'"{len(name)}{name}"', "X-Repo-Commit": COMMIT})
        else:
            self.send_error(404)

    do_HEAD = do_GET

    def reply(self, content: Any, headers: dict[str, str] | None = None) -> None:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(200)
        for name, value in {"Content-Length": str(len(data)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Generator[type[Hub]]:
    handler = type("Stand", (Hub,), {"files": {}, "sizes": {}, "hashes": {}})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_address[1]}")
    Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    yield handler
    server.shutdown()
    server.server_close()


@pytest.mark.filterwarnings("ignore")
def test_an_engine_comes_back_from_the_hub(
    xformc: CommandLine, hub: type[Hub], copy_engine: Path, tmp_path: Path
) -> None:
    result = xformc("push", copy_engine, "me/model", "--licence", "cc-by-4.0")
    assert result.code == 0, result.err
    card = hub.files["README.md"].decode()
    assert card.startswith("---\nlibrary_name: xformc\nlicense: cc-by-4.0\n") and "| target | " in card
    assert json.loads((copy_engine / "certificate.json").read_text())["stages"][0]["what"] in card
    hub.files |= {"weights.BIN": b"a pickle", ".gitattributes": b"", "\x1b[31m.py": b""}
    out = tmp_path / "pulled"
    result = xformc("pull", "me/model", "-o", out)
    assert result.code == 0, result.err
    assert "not downloaded: weights.BIN, .gitattributes, \\x1b[31m.py" in result.out
    assert {path.name for path in out.iterdir()} == {"README.md", *(path.name for path in copy_engine.iterdir())}
    assert all((out / path.name).read_bytes() == path.read_bytes() for path in copy_engine.iterdir() if path.is_file())
    assert xformc("inspect", out).code == 0


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("files", "sizes", "message"),
    [
        ({"../a.json": b"{}"}, {}, "'../a.json', which leads out of a folder"),
        ({"a.json": b"{}"}, {"a.json": 1 << 45}, "bytes; the limit is"),
        ({"engine.json": b"{}"}, {}, "engine.json"),
        ({"a.bin": b"", "b.py": b""}, {}, "must have 1 to 10,000 files that are read, found 0"),
        ({}, {"a.json": 3}, "the hub has failed"),
        ({"a.json": b"{ }"}, {"a.json": 2}, "a.json has 3 bytes; 2 are listed"),
        ({"a.json": b"{}", "b.json": b"{}"}, {"b.json": -2}, "does not say the size of b.json"),
    ],
)
def test_a_bad_repository_is_one_error(
    xformc: CommandLine, hub: type[Hub], tmp_path: Path, files: dict[str, bytes], sizes: dict[str, int], message: str
) -> None:
    hub.files, hub.sizes = files, sizes
    assert message in mistake(xformc("pull", "me/model", "-o", tmp_path / "pulled"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.filterwarnings("ignore")
def test_a_card_stays_until_another_one_is_asked_for(
    xformc: CommandLine, hub: type[Hub], copy_engine: Path, tmp_path: Path
) -> None:
    engine = tmp_path / "engine"
    shutil.copytree(copy_engine, engine)
    hub.files["README.md"] = b"my scores"
    assert xformc("push", engine, "me/model").code == 0 and hub.files["README.md"] == b"my scores"
    assert xformc("push", engine, "me/model", "--licence", "mit").code == 0
    assert b"license: mit" in hub.files["README.md"]
    (engine / "README.md").write_text("---\nlibrary_name: xformc\n---\nmine\n")
    assert "the engine has a README.md" in mistake(xformc("push", engine, "me/model", "--licence", "mit"))
    assert xformc("push", engine, "me/model").code == 0 and hub.files["README.md"].endswith(b"mine\n")
    assert "is public" in mistake(xformc("push", engine, "me/model", "--private"))
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    assert "is a run" in mistake(xformc("push", tmp_path / "run", "me/model"))


def test_a_large_file_has_the_hash_that_is_listed(xformc: CommandLine, hub: type[Hub], tmp_path: Path) -> None:
    hub.files, hub.hashes = {"a.json": b"{}"}, {"a.json": hashlib.sha256(b"[]").hexdigest()}
    assert "has another hash than is listed" in mistake(xformc("pull", "me/model", "-o", tmp_path / "pulled"))
    hub.hashes = {"a.json": hashlib.sha256(b"{}").hexdigest()}
    assert xformc("pull", "me/model", "-o", tmp_path / "pulled").code == 0


def test_what_cannot_be_pushed_is_one_error(
    xformc: CommandLine, hub: type[Hub], copy_engine: Path, tmp_path: Path
) -> None:
    engine = tmp_path / "engine"
    shutil.copytree(copy_engine, engine)
    assert "must be an identifier" in mistake(xformc("push", engine, "me/model", "--licence", "My Licence"))
    with (engine / "spec.yaml").open("a") as file:
        file.write("#")
    assert "bytes" in mistake(xformc("push", engine, "me/model"))
    assert "no such folder" in mistake(xformc("push", engine / "none", "me/model"))
    assert hub.files == {}
