"""The effect `proc.run`: one program, run to its end and its output collected. It must never go through a shell.

It is decided as if the agent started it itself and runs confined as the agent is, so it gains nothing over that.
"""

from __future__ import annotations

import errno
import os

from agentbox.guard.context import EffectUsage
from agentbox.guard.effects import _base
from agentbox.guard.paths import is_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentbox.guard.context import EffectContext
    from agentbox.guard.effects._base import Args, Result


class ProcRun:
    """Args: `argv` (list of texts), `cwd`, `input` (body) and `timeout` (seconds), the last three optional.

    Result: `status` (0 to 255, or 128+n for signal n), `stdout`, `stderr`; an error ETIMEDOUT, EFBIG or of execve(2).
    """

    op = "proc.run"
    irreversible = True
    mutates = True
    slow = True

    def normalise(self, args: Args, context: EffectContext) -> Args:
        argv = _argv(args.get("argv"))
        cwd = (
            context.cwd if args.get("cwd") is None else os.path.realpath(_base.path(args, "cwd", self.op, context.cwd))
        )
        stdin = _base.body(args, "input", self.op)
        timeout = _base.seconds(args, "timeout", self.op)
        # An argument inside a private folder has another name in every run.
        recorded: Args = {"argv": [context.show(word) for word in argv], "cwd": context.show(cwd)}
        if stdin is not None:
            recorded["input"] = stdin
        try:
            file = context.program(argv, cwd)["file"]
        except OSError as error:  # no such program: recorded like any other outcome, and a replay has no need of it
            return {**recorded, "_missing": error}
        recorded["file"] = context.show(file)
        return {**recorded, "_argv": argv, "_file": file, "_cwd": cwd, "_timeout": timeout}

    def identity(self, args: Args) -> Args:
        return {"argv": args["argv"], "cwd": args["cwd"], "input": _base.body_identity(args.get("input"))}

    def perform(self, args: Args, context: EffectContext) -> Result:
        if "_missing" in args:
            return _base.os_error(args["_missing"])
        try:
            status, stdout, stderr = context.spawn(
                args["_argv"],
                file=args["_file"],
                cwd=args["_cwd"],
                stdin=args.get("input") or b"",
                timeout=args["_timeout"],
                limit=_base.LIMIT,
            )
        except OSError as error:
            if error.errno == errno.ETIMEDOUT:  # whose own text is about connections
                error.strerror = f"{args['_argv'][0]} did not end within {args['_timeout']:g} s"
            result = _base.os_error(error)
            if error.filename == args["_cwd"]:
                result["error"]["filename"] = args["cwd"]  # else it is the program that could not be started
            return result
        return {"status": status, "stdout": stdout, "stderr": stderr}


def _argv(value: object) -> list[str]:
    """The argument list, checked; the program's name must not be empty."""
    if type(value) is list and value and value[0] and all(type(word) is str and is_name(word) for word in value):
        return value
    raise EffectUsage(
        f"proc.run: argv: got {_base.shown(value)}, expected a list of texts that a program can be given, itself first"
    )
