"""The SDK, `import agentbox.client as box`: files, HTTP, programs, clock and randomness as recorded effects.

It only asks: the supervisor decides, performs and records every effect (docs/spec/channel.md, role `sdk`). It must
never perform one itself, never decide policy, and load only built-in modules, since every agent pays for the import.
"""

from __future__ import annotations

import _json
import _socket
import _thread
import errno
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, NoReturn, ParamSpec, TypeVar

    Headers = Mapping[str, str]
    P = ParamSpec("P")
    T = TypeVar("T")
    Path = str | bytes | os.PathLike[str] | os.PathLike[bytes]

__all__ = [
    "BoxError", "CheckpointError", "Completed", "Denied", "NotSandboxed", "RequestFailed", "Response",
    "aget", "aread_bytes", "aread_text", "arequest", "arun", "awrite_bytes", "awrite_text",
    "get", "now", "random", "read_bytes", "read_text", "request", "run", "write_bytes", "write_text",
]  # fmt: skip

MAX_LINE = 64 * 1024 * 1024
"""The longest `call` line in bytes (docs/spec/channel.md, Transport 4)."""
MAX_TEXT_BODY = 64 * 1024
"""Above this many bytes a body travels as base64: a third longer, where JSON escapes may make it six times longer."""

# --- errors ---


class BoxError(Exception):
    """The root of every error that is the SDK's own; `code` is stable, `hint` (may be None) is the way out."""

    code = "sdk"
    hint: str | None = None


class NotSandboxed(BoxError, RuntimeError):
    """The program was not started by `agentbox run`, so there is no supervisor to ask."""

    code = "not-sandboxed"
    hint = "start this program with `agentbox run -p agentbox.policy -- python agent.py`"


class Denied(BoxError, PermissionError):
    """The policy refuses `op` on `target`; `rule` was consulted (None if none), `fix` is the line that would allow."""

    code = "denied"

    def __init__(
        self, text: str, *, op: str = "", target: str = "", rule: str | None = None, fix: str | None = None
    ) -> None:
        super().__init__(errno.EACCES, text)
        self.op = op
        self.target = target
        self.rule = rule
        self.fix = self.hint = fix

    def __str__(self) -> str:
        return str(self.strerror)


class RequestFailed(BoxError, OSError):
    """No HTTP answer could be had (name, connection, TLS, time, size). A status of 404 or 500 is an answer."""

    code = "request-failed"

    def __str__(self) -> str:
        return str(self.strerror)


class CheckpointError(BoxError, RuntimeError):
    """`--checkpoint` was asked for and no checkpoint could be taken, so the mutation was not made."""

    code = "checkpoint"


# --- the channel ---


class _Dialect:
    """What the C scanner of `json` reads (CPython 3.11-3.13, Modules/_json.c); `json` itself costs 8 ms to import."""

    strict = True
    object_hook = object_pairs_hook = None
    parse_float, parse_int, parse_constant = float, int, float


def _codec() -> tuple[Callable[[Any], bytes], Callable[[str], Any]]:
    """How to write and read one JSON line: CPython's C parts, or the `json` module where those have another shape."""
    try:
        scan: Any = _json.make_scanner(_Dialect)  # type: ignore[arg-type]
        encode = _json.make_encoder(
            None, _refuse_type, _json.encode_basestring_ascii, None, ":", ",", False, False, False
        )
        if scan("[1]", 0)[0] != [1] or "".join(encode([1], 0)) != "[1]":
            raise TypeError
    except (AttributeError, TypeError, ValueError):
        import json

        return (lambda value: json.dumps(value, separators=(",", ":")).encode()), json.loads
    return (lambda value: "".join(encode(value, 0)).encode("ascii")), (lambda text: scan(text, 0)[0])


def _refuse_type(value: object) -> NoReturn:
    raise TypeError(f"agentbox.client: got {type(value).__name__}, expected a value that JSON can carry")


_NOT_STARTED = (errno.ENOENT, errno.EACCES, errno.ENOEXEC, errno.ENOTDIR)
"""What execve(2) says about the program and not about its run."""
_dump, _load = _codec()
_local = _thread._local()
_task_numbers: Any = None
"""Task to number; ids of ended tasks are given out again, which would make lanes depend on the garbage collector."""


def _lost(why: str) -> NoReturn:
    """End the process at once: without a supervisor nothing may happen (docs/spec/channel.md, Failing closed)."""
    os.write(2, f"agentbox: the sandbox's supervisor cannot be reached ({why}); this process ends\n".encode())
    os._exit(70)


class _Channel:
    """One connection to the supervisor, for one thread of one process."""

    __slots__ = ("calls", "pid", "rest", "sock")

    def __init__(self, address: str) -> None:
        self.pid = os.getpid()
        self.calls = 0
        self.rest = b""
        self.sock = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        self.sock.settimeout(None)  # whatever socket.setdefaulttimeout() says
        try:
            self.sock.connect(address)
        except OSError as error:
            _lost(error.strerror or str(error))
        version = "{}.{}.{}".format(*sys.version_info[:3])
        hello = {"t": "hello", "v": 1, "role": "sdk", "runtime": "python", "version": version,
                 "ppid": os.getppid(), "executable": sys.executable or ""}  # fmt: skip
        self.send(_dump(hello))
        if self.receive().get("t") != "welcome":
            _lost("it did not say welcome")

    def __del__(self) -> None:
        self.sock.close()

    def send(self, line: bytes) -> None:
        try:
            self.sock.sendall(line + b"\n")
        except OSError as error:
            _lost(error.strerror or str(error))

    def receive(self) -> dict[str, Any]:
        """The next line, parsed. A result may be long, so what came in is joined once."""
        parts = [self.rest]
        while b"\n" not in parts[-1]:
            try:
                data = self.sock.recv(262144)
            except OSError as error:
                _lost(error.strerror or str(error))
            if not data:
                _lost("it closed the connection")
            parts.append(data)
        line, _, self.rest = b"".join(parts).partition(b"\n")
        try:
            answer = _load(line.decode())
        except (ValueError, StopIteration):
            answer = None
        if type(answer) is not dict:
            _lost("its answer is not a JSON object")
        return answer

    def call(self, op: str, args: dict[str, Any], origin: dict[str, Any]) -> dict[str, Any]:
        self.calls += 1
        line = _dump({"t": "call", "id": self.calls, "op": op, "args": args, **origin})
        if len(line) >= MAX_LINE:
            raise OSError(errno.EFBIG, f"{op}: the call has {len(line)} bytes, the channel carries at most {MAX_LINE}")
        self.send(line)
        answer = self.receive()
        if answer.get("t") != "result" or answer.get("id") != self.calls:
            _lost("its answer is not for this call")
        return answer


def _call(op: str, args: dict[str, Any]) -> dict[str, Any]:
    """Ask for one effect and wait for its value. The connection is out of reach while in use, so a signal handler that
    calls the SDK opens its own, and one that was interrupted midway is dropped instead of answering the next call."""
    origin = _local.__dict__.get("origin") or _origin()
    channel: _Channel | None = _local.__dict__.pop("channel", None)
    if channel is None or channel.pid != os.getpid():
        address = os.environ.get("AGENTBOX_CHANNEL")
        if not address:
            raise NotSandboxed(f"agentbox.client needs a sandbox: {NotSandboxed.hint}")
        channel = _Channel(address)
    answer = channel.call(op, args, origin)
    _local.channel = channel
    if answer.get("ok") is not True:
        raise _error(op, args, answer.get("error") or {})
    value = answer.get("value")
    return value if type(value) is dict else {}


def _error(op: str, args: dict[str, Any], error: dict[str, Any]) -> Exception:
    """The exception for an answer's `error` member."""
    kind, text, number = error.get("type"), str(error.get("text") or f"{op} failed"), error.get("errno")
    if kind == "denied":
        target = str(error.get("target") or args.get("path") or args.get("url") or (args.get("argv") or [""])[0])
        return Denied(text, op=op, target=target, rule=error.get("rule"), fix=error.get("fix"))
    if kind == "http":
        return RequestFailed(number or errno.EIO, text)
    if kind == "checkpoint":
        return CheckpointError(text)
    if kind == "usage":
        return ValueError(text)
    if kind == "os":
        name = error.get("filename") or args.get("path")
        if name is None and number in _NOT_STARTED and args.get("argv"):
            name = args["argv"][0]
        return OSError(number or errno.EIO, text) if name is None else OSError(number or errno.EIO, text, name)
    return BoxError(text)


# --- where a call comes from ---

_STDLIB = os.path.dirname(os.__file__) + "/"
_OWN = os.path.dirname(os.path.abspath(__file__)) + "/"


def _origin() -> dict[str, Any]:
    """The members `thread`, `task` and `site` of a call."""
    origin: dict[str, Any] = {"thread": _thread.get_native_id()}
    task = _task()
    if task is not None:
        origin["task"] = task
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith((_OWN, "<frozen")) and (not name.startswith(_STDLIB) or "/site-packages/" in name):
            origin["site"] = f"{name}:{frame.f_lineno}"
            break
        frame = frame.f_back  # type: ignore[assignment]
    return origin


def _task() -> int | None:
    """A number that names the running asyncio task as long as this process lives; None outside of one."""
    global _task_numbers
    asyncio = sys.modules.get("asyncio")
    try:
        task = asyncio.current_task() if asyncio is not None else None
    except (AttributeError, RuntimeError):  # asyncio is being imported, or no loop runs in this thread
        return None
    if task is None:
        return None
    if _task_numbers is None:
        import weakref

        _task_numbers = weakref.WeakKeyDictionary()
        _task_numbers.count = -1
    number: int | None = _task_numbers.get(task)
    if number is None:
        _task_numbers.count = number = _task_numbers.count + 1
        _task_numbers[task] = number
    return number


async def _in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a blocking call beside the event loop, in the lane of the task that awaits it, not of the pool's thread."""
    import asyncio

    def work() -> T:
        _local.origin = origin
        try:
            return function(*args, **kwargs)
        finally:
            del _local.origin

    origin = _origin()
    asked = asyncio.get_running_loop().run_in_executor(None, work)
    # A cancelled await would take it back while it still waits for a thread: in a replay, or then, but not in both.
    return await asyncio.shield(asked)


# --- values ---


def _path(path: Path) -> str:
    """The path as the caller means it, absolute: converted once, `..` and links left for the supervisor to resolve."""
    name = os.fsdecode(path)
    if "\0" in name:
        raise ValueError("embedded null byte")
    if not name:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
    return name if name.startswith("/") else os.getcwd() + "/" + name


def _pack(data: bytes) -> dict[str, str]:
    """A body as the channel carries it: `{"text": ...}` when it is short UTF-8, else `{"base64": ...}`."""
    if len(data) <= MAX_TEXT_BODY:
        try:
            return {"text": data.decode()}
        except UnicodeDecodeError:
            pass
    import binascii

    return {"base64": binascii.b2a_base64(data, newline=False).decode()}


def _unpack(body: object) -> bytes:
    """The bytes of a body in a result; no body is an empty one."""
    if type(body) is not dict:
        return body.encode() if type(body) is str else b""
    if "base64" not in body:
        return str(body.get("text", "")).encode()
    import binascii

    return binascii.a2b_base64(body["base64"])


class _Names(dict[str, str]):
    """HTTP headers: names in lower case, looked up in any case."""

    def __getitem__(self, name: str) -> str:
        return super().__getitem__(name.lower())

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and super().__contains__(name.lower())

    def get(self, name: str, default: Any = None) -> Any:
        return super().get(name.lower(), default)


class Response:
    """An HTTP answer: `status` (int), `headers` (in any case; repeated ones joined with `, `), `body` (bytes), its
    `sha256`, the `url` that answered, and `hops`, the redirects that led there, `{"status", "url"}` each."""

    __slots__ = ("body", "headers", "hops", "sha256", "status", "url")

    def __init__(self, value: dict[str, Any]) -> None:
        self.status: int = value["status"]
        self.headers: dict[str, str] = _Names(value.get("headers") or {})
        self.body = _unpack(value.get("body"))
        self.sha256: str = value.get("sha256", "")
        self.url: str = value.get("url", "")
        self.hops: list[dict[str, Any]] = value.get("hops") or []

    def __repr__(self) -> str:
        return f"<Response {self.status} {self.url} {len(self.body)} bytes>"

    @property
    def ok(self) -> bool:
        """True for a status of 200 to 299."""
        return 200 <= self.status < 300

    @property
    def text(self) -> str:
        """The body decoded by the charset that the answer names, else UTF-8; what does not decode is replaced."""
        charset = self.headers.get("content-type", "").lower().partition("charset=")[2].split(";")[0].strip(" \"'")
        try:
            return self.body.decode(charset or "utf-8", "replace")
        except LookupError:
            return self.body.decode("utf-8", "replace")

    def json(self) -> Any:
        """The body parsed as JSON; raises `json.JSONDecodeError` (a `ValueError`) when it is not JSON."""
        import json

        return json.loads(self.body)


class Completed:
    """A program that ended: `argv`, `status` (0 to 255, 128+n for signal n), `stdout_bytes` and `stderr_bytes`."""

    __slots__ = ("argv", "status", "stderr_bytes", "stdout_bytes")

    def __init__(self, argv: list[str], value: dict[str, Any]) -> None:
        self.argv = argv
        self.status: int = value["status"]
        self.stdout_bytes = _unpack(value.get("stdout"))
        self.stderr_bytes = _unpack(value.get("stderr"))

    def __repr__(self) -> str:
        return f"<Completed {self.argv!r} status {self.status}>"

    @property
    def ok(self) -> bool:
        """True for status 0."""
        return self.status == 0

    @property
    def stdout(self) -> str:
        """Standard output as UTF-8 text; what does not decode is replaced."""
        return self.stdout_bytes.decode("utf-8", "replace")

    @property
    def stderr(self) -> str:
        """Standard error as UTF-8 text; what does not decode is replaced."""
        return self.stderr_bytes.decode("utf-8", "replace")


# --- effects ---


def read_bytes(path: Path) -> bytes:
    """Read a regular file of at most 64 MiB (`read:` or `write:` rule). Raises `Denied`, `OSError` as `open` does."""
    return _unpack(_call("fs.read", {"path": _path(path)}).get("body"))


def read_text(path: Path, encoding: str = "utf-8") -> str:
    """`read_bytes`, decoded; line ends stay as they are in the file. Raises `UnicodeDecodeError` too."""
    return read_bytes(path).decode(encoding)


def write_bytes(path: Path, data: bytes) -> None:
    """Make or overwrite a file (`write:` rule); its folder must exist.

    Raises `Denied`, `CheckpointError`, and `OSError` as `open` does.
    """
    _call("fs.write", {"path": _path(path), "body": _pack(bytes(memoryview(data)))})


def write_text(path: Path, text: str, encoding: str = "utf-8") -> None:
    """`write_bytes` of the encoded text; line ends are written as they are. Raises `UnicodeEncodeError` too."""
    write_bytes(path, text.encode(encoding))


def request(
    method: str,
    url: str,
    *,
    headers: Headers | None = None,
    body: str | bytes | dict[str, Any] | list[Any] | None = None,
    timeout: float = 30,
) -> Response:
    """Send an HTTP request (`net:` rule for every host on the way); at most 10 redirects are followed.

    Args: `body` may be text (sent as UTF-8), bytes, or a dict or list (sent as JSON, with its content type); `timeout`
    bounds the whole exchange, in seconds. Any status is a `Response`. Raises `Denied`, `RequestFailed` when there is no
    answer, and `ValueError` for a URL, method or header that cannot be sent.
    """
    fields = dict(headers or {})
    if isinstance(body, dict | list):
        import json

        body = json.dumps(body)
        if not any(name.lower() == "content-type" for name in fields):
            fields["Content-Type"] = "application/json"
    args: dict[str, Any] = {"method": method, "url": url, "headers": fields, "timeout": timeout}
    if body is not None:
        args["body"] = _pack(body.encode() if isinstance(body, str) else bytes(memoryview(body)))
    return Response(_call("http.request", args))


def get(url: str, headers: Headers | None = None, timeout: float = 30) -> Response:
    """`request("GET", url)`."""
    return request("GET", url, headers=headers, timeout=timeout)


def run(
    argv: Sequence[str | bytes | os.PathLike[str]],
    *,
    input: str | bytes | None = None,
    cwd: Path | None = None,
    timeout: float | None = None,
    check: bool = False,
) -> Completed:
    """Run a program to its end, confined as the agent is (`exec:` rule), and collect what it prints (64 MiB a stream).

    Args: `argv` is a list, never a shell line; `input` is its standard input (text as UTF-8; nothing when None);
    `timeout`, in seconds, ends the program with its process group. Raises `Denied`, `CheckpointError`, `OSError` when
    it cannot start, `TimeoutError`, and with `check` `subprocess.CalledProcessError` when the status is not 0.
    """
    if isinstance(argv, str | bytes):
        raise TypeError("run: got one string, expected a list of arguments, as in run(['git', 'status'])")
    words = [os.fsdecode(word) for word in argv]
    args: dict[str, Any] = {"argv": words, "cwd": os.getcwd() if cwd is None else _path(cwd)}
    if input is not None:
        args["input"] = _pack(input.encode() if isinstance(input, str) else bytes(memoryview(input)))
    if timeout is not None:
        args["timeout"] = timeout
    done = Completed(words, _call("proc.run", args))
    if check and done.status:
        import subprocess

        raise subprocess.CalledProcessError(done.status, words, done.stdout, done.stderr)
    return done


def now() -> float:
    """The time in seconds since the epoch; a replay gives the recorded value."""
    return float(_call("clock.now", {})["value"])


def random() -> float:
    """A number from 0.0 up to, not including, 1.0; a replay gives the recorded value."""
    return float(_call("random.float", {})["value"])


# --- for asyncio: the same calls beside the event loop; a cancelled await does not take back what was asked for ---


async def aread_bytes(path: Path) -> bytes:
    """`read_bytes` for coroutines."""
    return await _in_thread(read_bytes, path)


async def aread_text(path: Path, encoding: str = "utf-8") -> str:
    """`read_text` for coroutines."""
    return await _in_thread(read_text, path, encoding)


async def awrite_bytes(path: Path, data: bytes) -> None:
    """`write_bytes` for coroutines."""
    await _in_thread(write_bytes, path, data)


async def awrite_text(path: Path, text: str, encoding: str = "utf-8") -> None:
    """`write_text` for coroutines."""
    await _in_thread(write_text, path, text, encoding)


async def arequest(
    method: str,
    url: str,
    *,
    headers: Headers | None = None,
    body: str | bytes | dict[str, Any] | list[Any] | None = None,
    timeout: float = 30,
) -> Response:
    """`request` for coroutines."""
    return await _in_thread(request, method, url, headers=headers, body=body, timeout=timeout)


async def aget(url: str, headers: Headers | None = None, timeout: float = 30) -> Response:
    """`get` for coroutines."""
    return await _in_thread(get, url, headers, timeout)


async def arun(
    argv: Sequence[str | bytes | os.PathLike[str]],
    *,
    input: str | bytes | None = None,
    cwd: Path | None = None,
    timeout: float | None = None,
    check: bool = False,
) -> Completed:
    """`run` for coroutines."""
    return await _in_thread(run, argv, input=input, cwd=cwd, timeout=timeout, check=check)
