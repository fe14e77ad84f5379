"""A process of its own that is told what to do through a pipe: one line of JSON in, one out.

The settings of CTranslate2's instruction sets are read when its library is loaded, and memory is a process's, so each
needs its own process. Only one of them works at a time: who asks waits for the answer.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any


class Child:
    """The module `benchmarks.decode.NAME`, running with these variables added to the environment."""

    def __init__(self, name: str, environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"benchmarks.decode.{name}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **environment},
            text=True,
        )

    def ask(self, **request: Any) -> dict[str, Any]:
        """The answer to this request."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise SystemExit(f"error: a process of CTranslate2 ended with {self._process.wait()}")
        return json.loads(answer)

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def answer_requests(methods: Mapping[str, Any]) -> None:
    """Answer each line of standard input by the method that its `do` names, given the rest of it."""
    for line in sys.stdin:
        request: dict[str, Any] = json.loads(line)
        print(json.dumps(methods[request.pop("do")](**request)), flush=True)
