"""Bodies: small ones inline in a line, large ones in `blobs/<sha256>` beside the trace (docs/spec/trace.md, section 6).

A blob is complete and on disk before a line may name it; this module must never write outside the `blobs` directory
or follow a link there.
"""

from __future__ import annotations

import os
import stat

from .chain import is_hash
from .errors import TraceError, from_os, shown
from .redact import Body

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .redact import Redactor

INLINE = 4096
"""The largest body in bytes that is written into the line."""

FOLDER = "blobs"
_OPEN = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


def describe_body(data: bytes | str, redactor: Redactor | None = None) -> tuple[dict[str, Any], bytes]:
    """Return (the JSON form of a body, the bytes it stands for), redacted; nothing is stored.

    `{"text"|"base64", "sha256", "size"}` up to `INLINE` bytes, else `{"blob": sha256, "size"}`. Where redaction
    changed the body, `redacted` is the SHA-256 of the body without the parts of the placeholders that differ from
    run to run, for `same_redacted`.
    """
    from hashlib import sha256

    raw = _bytes(data) if isinstance(data, str) else bytes(data)
    stable = None
    if redactor is not None:
        clean = redactor.data(raw)
        if clean != raw:
            raw = clean
            from .redact import stable_bytes

            stable = sha256(stable_bytes(clean)).hexdigest()
    name = sha256(raw).hexdigest()
    doc = Body({"blob": name} if len(raw) > INLINE else {**_inline(raw), "sha256": name})
    doc["size"] = len(raw)
    if stable is not None:
        doc["redacted"] = stable
    return doc, raw


def _bytes(text: str) -> bytes:
    """Encode text: as UTF-8, names with lone surrogates back to their bytes (PEP 383), other lone surrogates as they
    are."""
    for handler in ("strict", "surrogateescape"):
        try:
            return text.encode("utf-8", handler)
        except UnicodeEncodeError:
            continue
    return text.encode("utf-8", "surrogatepass")


def _inline(raw: bytes) -> dict[str, str]:
    try:
        return {"text": raw.decode("utf-8")}
    except UnicodeDecodeError:
        from binascii import b2a_base64

        return {"base64": b2a_base64(raw, newline=False).decode("ascii")}


class BlobStore:
    """The `blobs` directory beside a trace. Made at the first blob, mode 0700; its files 0600."""

    __slots__ = ("_folder", "_known", "_serial", "path")

    def __init__(self, trace_path: str) -> None:
        self.path = os.path.join(os.path.dirname(trace_path), FOLDER)
        self._folder = -1
        self._known: set[str] = set()
        self._serial = 0

    def __contains__(self, name: str) -> bool:
        return name in self._known

    def put(self, name: str, raw: bytes) -> None:
        """Store `raw` under its SHA-256 `name`, on disk when this returns. Raises `TraceError` (`full`, `io`)."""
        if name in self._known:
            return
        try:
            folder = self._open()
            if not _holds(folder, name, len(raw)):
                self._write(folder, name, raw)
        except OSError as error:
            raise from_os(os.path.join(self.path, name), "the blob cannot be written", error) from None
        self._known.add(name)

    def _open(self) -> int:
        if self._folder < 0:
            try:
                os.mkdir(self.path, 0o700)
            except FileExistsError:
                pass
            self._folder = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | _OPEN)
        return self._folder

    def _write(self, folder: int, name: str, raw: bytes) -> None:
        self._serial += 1
        temporary = f".{name}.{os.getpid()}.{self._serial}.tmp"
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _OPEN, 0o600, dir_fd=folder)
        try:
            try:
                view = memoryview(raw)
                while view:
                    view = view[os.write(fd, view) :]
                os.fsync(fd)
            finally:
                os.close(fd)
            os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            os.unlink(temporary, dir_fd=folder)
            raise
        os.fsync(folder)

    def close(self) -> None:
        """Close the directory; may be called twice."""
        if self._folder >= 0:
            os.close(self._folder)
            self._folder = -1


def _holds(folder: int, name: str, size: int) -> bool:
    """Say whether a blob of an earlier run is there and sound; a damaged one is replaced."""
    try:
        fd = os.open(name, os.O_RDONLY | _OPEN, dir_fd=folder)
    except OSError:
        return False
    try:
        return _check(fd, name, size) == ""
    finally:
        os.close(fd)


def _check(fd: int, name: str, size: int | None) -> str:
    """Return what is wrong with an open blob, or an empty string."""
    from hashlib import sha256

    facts = os.fstat(fd)
    if not stat.S_ISREG(facts.st_mode):
        return "is not a regular file"
    if size is not None and facts.st_size != size:
        return f"has {facts.st_size} bytes, expected {size}"
    digest = sha256()
    while block := os.read(fd, 1 << 20):
        digest.update(block)
    return "" if digest.hexdigest() == name else f"has the sha256 {digest.hexdigest()}"


def folder_of(trace_path: str) -> str:
    """Return the folder of a trace's blobs: beside the file that its name leads to, which may be a link."""
    return os.path.join(os.path.dirname(os.path.realpath(trace_path)), FOLDER)


def check_blob(folder: str, name: str) -> tuple[str, str] | None:
    """Check the blob `name` by its hash: None if it is sound, else (`blob-missing` or `blob-edited`, what was
    found)."""
    try:
        fd = os.open(os.path.join(folder, name), os.O_RDONLY | _OPEN)
    except OSError as error:
        return "blob-missing", (error.strerror or str(error)).lower()
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return "blob-missing", "it is not a regular file"
        wrong = _check(fd, name, None)
    except OSError as error:
        wrong = f"cannot be read: {(error.strerror or str(error)).lower()}"
    finally:
        os.close(fd)
    return ("blob-edited", wrong) if wrong else None


def load_body(doc: dict[str, Any], trace_path: str | os.PathLike[str]) -> bytes:
    """Return the bytes that a body in a trace stands for.

    `doc` is what `TraceWriter.body` returned, `trace_path` the trace that holds it (its blobs are beside it). Size
    and hash are checked. Raises `TraceError` (`blob`) for a body that is missing, damaged or not a body.
    """
    from hashlib import sha256

    if "blob" in doc:
        raw, name = _load_blob(doc["blob"], os.fspath(trace_path)), doc["blob"]
    else:
        raw, name = _load_inline(doc), doc.get("sha256")
    if doc.get("size", len(raw)) != len(raw):
        raise TraceError(f"body: has {len(raw)} bytes, expected {doc['size']!a}", code="blob")
    if name is not None and sha256(raw).hexdigest() != name:
        raise TraceError(
            f"body: has the sha256 {sha256(raw).hexdigest()}, expected {name!a}",
            code="blob",
            hint="the trace or its blobs were changed: see `agentbox verify`",
        )
    return raw


def _load_inline(doc: dict[str, Any]) -> bytes:
    if isinstance(doc.get("text"), str):
        return _bytes(doc["text"])
    from binascii import Error, a2b_base64

    try:
        return a2b_base64(doc["base64"], strict_mode=True)
    except (KeyError, TypeError, ValueError, Error):
        raise TraceError(
            "body: holds no usable `text`, `base64` or `blob`, expected one of them", code="blob"
        ) from None


def _load_blob(name: object, trace_path: str) -> bytes:
    if not is_hash(name):
        raise TraceError(f"body: `blob` is {name!a}, expected 64 hex digits", code="blob")
    path = os.path.join(folder_of(trace_path), str(name))
    try:
        fd = os.open(path, os.O_RDONLY | _OPEN)
        with open(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise TraceError(f"{shown(path)}: is not a regular file, expected a blob", code="blob")
            return file.read()
    except OSError as error:
        raise TraceError(
            f"{shown(path)}: the blob cannot be read: {(error.strerror or str(error)).lower()}",
            code="blob",
            hint="keep the `blobs` directory beside its trace",
        ) from None
