"""The command line: its commands are in `commands`; a user's mistake is one message and exit code 2.

Exit codes: 0 done; 1 our bug (with a traceback); 2 the user's mistake; 130 interrupted; 141 the
reader of our output has gone; 143 terminated.
"""

import inspect
import logging
import os
import re
import signal
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import IO, Any, NoReturn, cast, get_args

import typer
from typer.core import TyperCommand, TyperGroup

from xformc import __version__
from xformc.commands.align import align
from xformc.commands.attention import attention
from xformc.commands.bench import bench
from xformc.commands.build import build, verify
from xformc.commands.check import check, schema
from xformc.commands.cmake_dir import cmake_dir
from xformc.commands.corpus import corpus
from xformc.commands.data import data
from xformc.commands.diff import diff
from xformc.commands.distill import distill
from xformc.commands.draw import draw
from xformc.commands.evaluate import evaluate
from xformc.commands.export import export
from xformc.commands.generate import generate
from xformc.commands.hub import pull, push
from xformc.commands.import_weights import import_weights
from xformc.commands.inspect_engine import inspect_engine
from xformc.commands.ir import ir
from xformc.commands.kernels import kernels
from xformc.commands.list_specs import list_specs
from xformc.commands.new import new
from xformc.commands.options import Quiet, Verbose
from xformc.commands.predict import predict
from xformc.commands.report import report
from xformc.commands.score import score
from xformc.commands.shortlist import shortlist
from xformc.commands.train import average, train
from xformc.commands.transcribe import transcribe
from xformc.commands.translate import translate
from xformc.errors import UserError, refuse_together
from xformc.extras import missing_extra
from xformc.terminal import set_verbosity

USAGE_ERROR = cast(type[Exception], typer.BadParameter.__bases__[0])
"""What a wrong command line raises; typer exports only this kind of it."""


class _Commands(TyperGroup):
    """The one place where what a user can cause becomes a message and an exit code."""

    def main(self, *args: Any, **extra: Any) -> NoReturn:
        try:
            code: object = super().main(*args, **{**extra, "standalone_mode": False})
        except USAGE_ERROR as error:
            usage = cast(Any, error)
            command = usage.ctx.command_path if usage.ctx else "xformc"
            message = " ".join(usage.format_message().replace("Value error, ", "").split())
            _fail(UserError(message, hint=f"{command} --help"))
        sys.exit(code if isinstance(code, int) else 0)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands in their groups."""
        for title, names in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:9}", _first_paragraph(self.commands[name])) for name in names])

    def make_context(self, *args: Any, **extra: Any) -> Any:
        with _explained():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: Any) -> object:
        with _explained():
            result: object = super().invoke(ctx)
            sys.stdout.flush()
            return result


class _Command(TyperCommand):
    """A command whose help names its arguments without their types, and whose errors name options as they are typed."""

    def invoke(self, ctx: Any) -> object:
        try:
            return super().invoke(ctx)
        except UserError as error:
            if error.place is not None:  # in a file, in which names are as Python's
                raise
            names = {one.name: next((word for word in one.opts if word.startswith("--")), "") for one in self.params}
            raise UserError(
                _as_typed(error.message, names), hint=None if error.hint is None else _as_typed(error.hint, names)
            ) from error

    def format_options(self, ctx: Any, formatter: Any) -> None:
        records: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for parameter in cast(Any, self.get_params(ctx)):
            record = parameter.get_help_record(ctx)
            if parameter.param_type_name == "argument":
                records["Arguments"].append((parameter.metavar, record[1]))
            elif record is not None:
                records["Options"].append(record)
        for title, rows in records.items():
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


_LIST = re.compile(r"([a-z_]+(?:(?:, | and )[a-z_]+)*)(?=: | must | exclude )")
_RARE = re.compile(r"(?<![\w.'/-])[a-z]+(?:_[a-z]+)+(?![\w.'/-])")


def _as_typed(text: str, options: Mapping[str, str]) -> str:
    """The text with options in place of the names that they have in Python.

    These are all of a list that it begins with, and elsewhere those that cannot be other words.
    """
    listed = _LIST.match(text)
    words = [] if listed is None else re.split("(, | and )", listed[0])
    if not all(options.get(word) for word in words[::2]):
        words = []
    rest = text[sum(map(len, words)) :]
    typed = "".join(options.get(word, word) for word in words)
    return typed + _RARE.sub(lambda found: options.get(found[0]) or found[0], rest)


def _first_paragraph(command: Any) -> str:
    return " ".join(command.help.partition("\n\n")[0].split())


@contextmanager
def _explained() -> Generator[None]:
    try:
        yield
    except UserError as error:
        _fail(error)
    except BrokenPipeError:
        _leave(141)
    except KeyboardInterrupt:
        _say("interrupted")
        _leave(130)
    except ModuleNotFoundError as error:
        _fail(_missing_extra(error))
    except OSError as error:
        _fail(UserError(error.strerror or str(error), place=_file_name(error)))


GROUPS: Mapping[str, Mapping[str, Callable[..., None]]] = {
    "Models": {
        "list": list_specs,
        "new": new,
        "check": check,
        "diff": diff,
        "report": report,
        "draw": draw,
        "ir": ir,
        "schema": schema,
    },
    "Training": {
        "corpus": corpus,
        "distill": distill,
        "data": data,
        "import": import_weights,
        "train": train,
        "average": average,
        "shortlist": shortlist,
    },
    "Engines": {
        "build": build,
        "verify": verify,
        "inspect": inspect_engine,
        "bench": bench,
        "export": export,
        "push": push,
        "pull": pull,
        "kernels": kernels,
        "cmake-dir": cmake_dir,
    },
    "Use": {
        "translate": translate,
        "generate": generate,
        "predict": predict,
        "transcribe": transcribe,
        "score": score,
        "align": align,
        "evaluate": evaluate,
        "attention": attention,
    },
}
"""The commands, as the help groups them."""


def _with_shared(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the options that it takes as `**options`, behind --output, and --quiet and --verbose."""
    signature = inspect.signature(command)
    own = list(signature.parameters.values())
    if own and own[-1].kind is inspect.Parameter.VAR_KEYWORD:
        (shared,) = get_args(own.pop().annotation)
        place = 1 + [parameter.name for parameter in own].index("output")
        own[place:place] = [_optional(name, kind, None) for name, kind in shared.__annotations__.items()]
    options = [_optional(name, kind, False) for name, kind in (("quiet", Quiet), ("verbose", Verbose))]

    @wraps(command)
    def run(*args: Any, quiet: bool, verbose: bool, **arguments: Any) -> None:
        refuse_together({"--quiet": quiet, "--verbose": verbose})
        set_verbosity(quiet=quiet, verbose=verbose)
        _check_output(**arguments)
        command(*args, **arguments)

    del run.__wrapped__
    cast(Any, run).__signature__ = signature.replace(parameters=[*own, *options])
    return run


def _optional(name: str, kind: object, default: object) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)


def _check_output(*, output: Path | None = None, **others: object) -> None:
    """Raises: UserError if the file that a command writes is one that it reads."""
    if output is None or not output.is_file():
        return
    listed = (cast(list[object], value) if isinstance(value, list | tuple) else [value] for value in others.values())
    given = [one for values in listed for one in values]
    for path in (Path(one) for one in given if isinstance(one, str | Path)):
        if os.path.exists(path) and path.samefile(output):
            raise UserError("--output is a file that is read", place=str(output), hint="write to another file")


app = typer.Typer(
    cls=_Commands,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for group in GROUPS.values():
    for name, command in group.items():
        app.command(name, cls=_Command)(_with_shared(command))


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"xformc {__version__}", flush=True)
        raise typer.Exit


@app.callback()
def describe(
    version: bool = typer.Option(
        False, "--version", "-V", help="Print the version.", callback=_print_version, is_eager=True
    ),
) -> None:
    """Compile a YAML spec into a PyTorch module to train and an ONNX engine to ship.

    \b
    xformc check transformer_base                      is the spec right? how large is it?
    xformc train SPEC --data DIR -o RUN                train it
    xformc build RUN -o ENGINE                         compile it, and check the engine against PyTorch
    xformc translate ENGINE < in.txt > out.txt         use it

    `xformc COMMAND --help` explains a command with examples.
    """


def main() -> None:
    """Run the command line of this process."""
    _open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        _use_utf8(stream)
    logging.basicConfig(format="%(levelname)s: %(message)s")
    for level in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR):
        logging.addLevelName(level, logging.getLevelName(level).lower())
    signal.signal(signal.SIGTERM, _end)
    app(sys.argv[1:] or ["--help"], prog_name="xformc")


def _end(number: int, frame: object) -> NoReturn:
    """Exit on SIGTERM as on an error, so that no temporary file stays behind."""
    sys.exit(128 + number)


def _open_closed_streams() -> None:
    """A standard stream that the caller closed is None in Python; an empty one takes its place and its number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115


def _use_utf8(stream: IO[str]) -> None:
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(encoding="utf-8", errors="backslashreplace")


def _fail(error: UserError) -> NoReturn:
    _say(f"error: {error}")
    _leave(2)


def _say(message: str) -> None:
    """Write to standard error, if that can be written; names out of files may not steer the terminal."""
    safe = "".join(char if char.isprintable() or char == "\n" else repr(char)[1:-1] for char in message)
    with suppress(OSError):
        print(safe, file=sys.stderr)


def _leave(code: int) -> NoReturn:
    """Exit with `code`, dropping output that can no longer be written."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)


def _missing_extra(error: ModuleNotFoundError) -> UserError:
    missing = missing_extra(error)
    if missing is None:
        raise error
    package, extra = missing
    return UserError(
        f"this command needs the package {package}, which is not installed", hint=f"pip install 'xformc[{extra}]'"
    )


def _file_name(error: OSError) -> str | None:
    return None if error.filename is None else os.fsdecode(error.filename)
