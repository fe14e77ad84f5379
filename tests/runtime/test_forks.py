"""An engine and other processes: a child ends as any other, and an engine is loaded where it is used."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from xformc.errors import UserError
from xformc.runtime import Engine

FORKS = """
import os, signal, sys, xformc
with xformc.load(sys.argv[1]) as engine:
    list(engine.translate_stream(["hello world"] * 300, workers=2))
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        sys.exit(7)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), engine.translate(["hello world"])[0][0].text)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_child_of_a_process_with_an_engine_ends(copy_engine: Path) -> None:
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKS, str(copy_engine)]
    found = subprocess.run(command, capture_output=True, check=False, text=True, timeout=60)
    assert found.stdout == "7 hello world\n", found.stderr


def test_an_engine_is_not_sent_to_another_process(engine: Engine) -> None:
    with pytest.raises(
        UserError, match="an engine cannot be sent to another process\nhint: send the name of its folder"
    ):
        pickle.dumps(engine)
