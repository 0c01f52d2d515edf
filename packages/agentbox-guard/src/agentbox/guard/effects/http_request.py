"""The effect `http.request`: one request and the redirects that it leads to.

It must never dial a host that the policy did not decide, first or tenth.
"""

from __future__ import annotations

import errno
import time

from agentbox.guard.context import EffectUsage
from agentbox.guard.effects import _base

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from agentbox.guard.context import EffectContext
    from agentbox.guard.effects._base import Args, Result
    from agentbox.guard.effects._http import Answer
    from agentbox.guard.effects._url import Target

MAX_HOPS = 10
DEFAULT_TIMEOUT = 30.0
_TOKEN = frozenset("!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
"""The letters of a method or a field name (RFC 9110, 5.6.2)."""
_OURS = frozenset(
    ("host", "content-length", "transfer-encoding", "connection", "keep-alive", "upgrade", "expect", "te", "trailer")
)
"""Fields that say where a request goes or ends: were they the agent's, the policy would decide on something else."""
_ABOUT_BODY = frozenset(("content-type", "content-encoding", "content-language", "content-location", "digest"))


class HttpRequest:
    """Args: `method`, `url`, and optional `headers` (name to value), `body`, `timeout` (seconds, all in all).

    Result: `status`, `headers`, `body`, its `sha256`, `url` that answered, `hops` (`status`, `url` of each redirect);
    or an error of type `http` when there is no answer. Any status is an answer.
    """

    op = "http.request"
    irreversible = True
    mutates = False
    slow = True

    def normalise(self, args: Args, context: EffectContext) -> Args:
        from agentbox.guard.effects import _url

        method = _base.text(args, "method", self.op).upper()
        if not _TOKEN.issuperset(method) or method in ("CONNECT", "TRACE"):
            raise EffectUsage(f"{self.op}: method: got {_base.shown(method)}, expected one such as GET or POST")
        try:
            target = _url.parse(args.get("url"))
        except _url.BadURL as error:
            raise EffectUsage(f"{self.op}: url: {error}") from None
        headers = _headers(args.get("headers"))
        body = _base.body(args, "body", self.op)
        timeout = _base.seconds(args, "timeout", self.op) or DEFAULT_TIMEOUT
        context.host(target.host, target.port)
        request: Args = {"method": method, "url": target.url, "headers": headers}
        if body is not None:
            request["body"] = body
        return {**request, "_target": target, "_timeout": timeout}

    def identity(self, args: Args) -> Args:
        return {"method": args["method"], "url": args["url"], "body": _base.body_identity(args.get("body"))}

    def perform(self, args: Args, context: EffectContext) -> Result:
        from agentbox.guard.effects import _http

        journey = _Journey(args, context)
        try:
            answer = journey.travel()
        except _http.Failed as failure:
            # The path and query may hold secrets, so an error names the origin only.
            text = f"{journey.method} {journey.target.origin}: {failure}"
            error = {"type": "http", "text": text, "hops": journey.hops}
            return {"error": {**error, "errno": failure.number} if failure.number else error}
        return {
            "status": answer.status,
            "headers": answer.headers,
            "body": answer.body,
            "sha256": _base.sha256(answer.body),
            "url": journey.target.url,
            "hops": journey.hops,
        }


class _Journey:
    """A request on its way through redirects (RFC 9110, 15.4)."""

    def __init__(self, args: Args, context: EffectContext) -> None:
        self.context = context
        self.method: str = args["method"]
        self.target: Target = args["_target"]
        self.headers: dict[str, str] = dict(args["headers"])
        self.body: bytes | None = args.get("body")
        self.timeout: float = args["_timeout"]
        self.deadline = time.monotonic() + self.timeout
        self.hops: list[dict[str, Any]] = []

    def travel(self) -> Answer:
        """The first answer that is no redirect. Raises `Failed`, and `EffectDenied` for a hop that no rule allows."""
        from agentbox.guard.effects._http import Failed

        while True:
            answer = self.ask()
            location = answer.headers.get("location", "")
            if answer.status not in (301, 302, 303, 307, 308) or not location:
                return answer
            if len(self.hops) == MAX_HOPS:
                raise Failed(f"more than {MAX_HOPS} redirects", errno.ELOOP)
            self.redirect(answer.status, location)

    def ask(self) -> Answer:
        from agentbox.guard.effects import _http

        try:
            addresses = self.context.addresses(self.target.host, self.target.port)
        except OSError:
            raise _http.Failed("the name cannot be resolved") from None
        headers = {"User-Agent": "agentbox", "Accept": "*/*", "Accept-Encoding": "identity"}
        own = {name.lower() for name in self.headers}
        headers = {name: value for name, value in headers.items() if name.lower() not in own}
        headers.update(self.headers)
        return _http.exchange(self.method, self.target, headers, self.body, addresses=addresses, deadline=self.deadline)

    def redirect(self, status: int, location: str) -> None:
        """Turn the request to where an answer points to; that hop is decided like the first."""
        from agentbox.guard.effects import _http, _url

        try:
            # http.client reads fields as Latin-1, servers mean UTF-8.
            target = _url.join(self.target, location.encode("latin-1").decode("utf-8", "replace"))
        except (_url.BadURL, UnicodeError) as error:
            raise _http.Failed(f"redirected to nowhere: {error}") from None
        self.hops.append({"status": status, "url": self.target.url})
        self.context.host(target.host, target.port)
        if (status == 303 and self.method != "HEAD") or (status in (301, 302) and self.method == "POST"):
            self.method, self.body = "GET", None
            self.drop(_ABOUT_BODY.__contains__)
        if target.origin != self.target.origin:
            from agentbox.trace.secretnames import is_secret_member

            self.drop(is_secret_member)
        self.target = target

    def drop(self, unwanted: Callable[[str], bool]) -> None:
        """Send no field any more whose lower-case name is unwanted."""
        self.headers = {name: value for name, value in self.headers.items() if not unwanted(name.lower())}


def _headers(value: object) -> dict[str, str]:
    """The agent's header fields, checked: no field that is ours to set, no line ends, each name once."""
    if value is None:
        return {}
    if type(value) is not dict:
        raise EffectUsage(f"http.request: headers: got {_base.shown(value)}, expected names and values")
    seen: set[str] = set()
    for name, content in value.items():
        if type(name) is not str or not name or not _TOKEN.issuperset(name):
            raise EffectUsage(
                f"http.request: headers: got the name {_base.shown(name)}, expected letters, digits and -"
            )
        lower = name.lower()
        if lower in _OURS or lower.startswith("proxy-conn"):
            raise EffectUsage(
                f"http.request: headers: got {name!r}, which is derived from the URL and the body; leave it out"
            )
        if lower in seen:
            raise EffectUsage(f"http.request: headers: got {name!r} twice, expected it once")
        seen.add(lower)
        if type(content) is not str or not _sendable(content):
            # The value is not shown: it may be a secret.
            raise EffectUsage(f"http.request: headers: {name}: expected a text of Latin-1 letters without line ends")
    return value


def _sendable(content: str) -> bool:
    return all(char == "\t" or (" " <= char <= "\xff" and char != "\x7f") for char in content)
