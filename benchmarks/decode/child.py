"""Child processes that take one line of JSON on a pipe and answer with one.

CTranslate2 reads its instruction set when its library is loaded, and memory is measured per process, so each setting
needs its own process. Only one process works at a time: the caller waits for the answer.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any


class Child:
    """The module `benchmarks.decode.NAME`, run by `python` with these variables added to the environment."""

    def __init__(self, name: str, environment: Mapping[str, str], python: str = sys.executable) -> None:
        self._name = name
        self._process = subprocess.Popen(
            [python, "-m", f"benchmarks.decode.{name}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **environment},
            text=True,
        )

    def ask(self, **request: Any) -> dict[str, Any]:
        """Return the answer to a request."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise SystemExit(f"error: the process of {self._name} exited with code {self._process.wait()}")
        return json.loads(answer)

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def answer_requests(methods: Mapping[str, Any]) -> None:
    """Answer each line of standard input with the method named by `do`, called with the other keys."""
    for line in sys.stdin:
        request: dict[str, Any] = json.loads(line)
        print(json.dumps(methods[request.pop("do")](**request)), flush=True)
