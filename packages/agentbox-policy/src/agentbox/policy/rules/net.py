"""The rule kind `net:`: hosts and sockets that may be connected to; a host may also be looked up (docs/spec/policy.md,
section 6).

Never resolves a name, and never lets a name stand for an address or an address for a name.
"""

from __future__ import annotations

from agentbox.policy import place
from agentbox.policy.address import is_special_address
from agentbox.policy.errors import PolicyError
from agentbox.policy.forms.host import HostFault, canonical_host, host_matches
from agentbox.policy.forms.path import glob_matches, glob_patterns, path_fix, quoted
from agentbox.policy.rules._base import Kind, Unusable, arity
from agentbox.policy.rules._files import plain_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentbox.policy.lexer import Value
    from agentbox.policy.model import Policy, Rule
    from agentbox.policy.rules._base import Form, Scope


class Host:
    """A canonical target: `kind` name or address, `port` None for a look-up, `address` where a name leads, if known."""

    __slots__ = ("address", "host", "kind", "port")

    def __init__(self, kind: str, host: str, port: int | None, address: str | None) -> None:
        self.kind = kind
        self.host = host
        self.port = port
        self.address = address


class Net(Kind):
    """`net: HOST`, `net: HOST:PORT` or `net: unix:PATH`."""

    key = "net"
    covers = ("net",)
    summary = "hosts the agent may look up and connect to: NAME, *.NAME or ADDRESS, with :PORT or without; unix:PATH"
    starter = (
        "# net: api.example.com:443",
        "# net: *.example.org",
        "# net: 127.0.0.1:8080, [::1]:8080, localhost:8080",
        "# net: unix:./out/app.sock",
    )
    members = (
        ("match", (str,)),
        ("host", (str, type(None))),
        ("port", (int, type(None))),
        ("root", (str, type(None))),
        ("glob", (str, type(None))),
    )

    def compile(self, value: Value, scope: Scope) -> Form:
        if value.plain.startswith("unix:"):
            return _compile_socket(value, scope)
        host, port = _split_port(value.plain)
        match, canonical = _compile_host(host, value.plain)
        return {"match": match, "host": canonical, "port": port, "root": None, "glob": None}

    def restore(self, members: Form) -> Form:
        form = super().restore(members)
        needed = {"name": "host", "address": "host", "suffix": "host", "socket": "root", "any": "match"}.get(
            form["match"]
        )
        if needed is None or form[needed] is None:
            raise PolicyError(
                f"got the match {form['match']!r} in a net rule without what it needs", code="normal-form"
            )
        return form

    def target(self, given: tuple[object, ...]) -> Host | str:
        arity(given, 1, 2, 3)
        first = given[0]
        if type(first) is not str:
            raise Unusable(f"the host is not text but {type(first).__name__}")
        if first.startswith("unix:"):
            arity(given, 1)
            name = first[5:]
            return name if name[:1] == "@" and _is_encodable(name) else plain_path(name)
        arity(given, 2, 3)
        try:
            kind, host = canonical_host(first)
            address = None if len(given) == 2 else _address(given[2])
        except HostFault as fault:
            raise Unusable(str(fault)) from None
        return Host(kind, host, _port(given[1]), address)

    def show(self, target: Host | str) -> str:
        return f"unix:{target}" if type(target) is str else _written(target.host, target.port)  # type: ignore[union-attr]

    def find(self, policy: Policy, target: Host | str) -> Rule | None:
        if isinstance(target, str):
            return next((rule for rule in policy.rules_of(self.covers) if _socket_matches(rule.form, target)), None)
        found = _host_rule(policy, target.kind, target.host, target.port)
        if found is None or not _leads_astray(target) or found.form["match"] == "any":
            return found
        # Rebinding: a name that leads to this machine or a private network needs that address allowed as well (section
        # 6).
        return _host_rule(policy, "address", target.address or "", target.port)

    def explain(self, policy: Policy, target: Host | str) -> tuple[str, Rule | None]:
        if isinstance(target, str):
            return "no net rule names this socket", None
        near = _host_rule(policy, target.kind, target.host, target.port)
        if near is not None:
            kind = is_special_address(target.address or "")
            return f"it leads to {target.address} ({kind}), which needs a rule of its own", near
        near = _host_rule(policy, target.kind, target.host, None)
        if near is not None:
            return f"{near.where} allows it on port {near.form['port']} only", near
        if target.kind == "address":
            return "no net rule names this address, and rules for names do not cover addresses", None
        return "no net rule names this host", None

    def fix(self, policy: Policy, target: Host | str) -> str:
        if isinstance(target, str):
            if target[:1] == "@":
                value = quoted("unix:" + target, False)
            else:
                line = path_fix("read", target, policy.cwd, exact=True)
                value = quoted("unix:" + _relative(target, policy.cwd), False, wild=True) if line else ""
            return f"net: {value}" if value else ""
        port = target.port or None
        wanted = []
        if _host_rule(policy, target.kind, target.host, target.port) is None:
            wanted.append(_written(target.host, port))
        if target.address is not None and _leads_astray(target):
            wanted.append(_written(target.address, port))
        return f"net: {', '.join(wanted)}"


def _relative(path: str, cwd: str) -> str:
    return "./" + path[len(cwd) + 1 :] if cwd != "/" and path.startswith(cwd + "/") else path


def _host_rule(policy: Policy, kind: str, host: str, port: int | None) -> Rule | None:
    for rule in policy.rules_of(Net.covers):
        if rule.form["match"] != "socket" and host_matches(rule.form, kind, host, port):
            return rule
    return None


def _leads_astray(target: Host) -> bool:
    """Whether a name leads into a special range; `localhost` may lead to this machine, that is what it means."""
    if target.kind != "name" or target.address is None:
        return False
    special = is_special_address(target.address)
    return special is not None and not (target.host == "localhost" and special == "loopback")


def _socket_matches(form: Form, path: str) -> bool:
    if form["match"] != "socket":
        return False
    root, glob = form["root"], form["glob"]
    if glob is None or path[:1] == "@":
        return bool(path == root)
    prefix = root if root == "/" else root + "/"
    return path.startswith(prefix) and glob_matches(glob_patterns(glob), path[len(prefix) :])


def _compile_socket(value: Value, scope: Scope) -> Form:
    path = value.plain[5:]
    if not path:
        raise PolicyError(
            "got unix: without a path", code="empty-value", hint="write the socket's path: net: unix:/run/app.sock"
        )
    if path[0] == "@":
        root, glob = path, None
    else:
        root, glob = place.root_and_glob(value.with_plain(path), scope)
    return {"match": "socket", "host": None, "port": None, "root": root, "glob": glob}


def _is_encodable(name: str) -> bool:
    """Whether the name of an abstract socket (unix(7)) can be one: 107 bytes after the NUL that `@` stands for."""
    try:
        encoded = name.encode("utf-8", "surrogateescape")
    except UnicodeError:
        raise Unusable("the name holds characters that no socket can have") from None
    if b"\0" in encoded or not 2 <= len(encoded) <= 108 or encoded.decode("utf-8", "surrogateescape") != name:
        raise Unusable("no abstract socket has such a name")
    return True


def _address(given: object) -> str:
    if type(given) is not str:
        raise Unusable(f"the address is not text but {type(given).__name__}")
    kind, address = canonical_host(given)
    if kind != "address":
        raise Unusable("the address is a name")
    return address


def _port(given: object) -> int | None:
    """A port of a target; 0 asks the system for one (bind) and so matches only rules without a pin."""
    if given is None:
        return None
    if type(given) is not int or not 0 <= given <= 65535:
        raise Unusable("the port is not a number from 0 to 65535")
    return given


def _written(host: str, port: int | None) -> str:
    if port is None:
        return host
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _split_port(text: str) -> tuple[str, int | None]:
    """HOST and PORT of a rule's value."""
    if "://" in text:
        host = text.partition("://")[2].partition("/")[0]
        raise PolicyError(f"got the URL {text}, expected a host", code="bad-host", hint=f"did you mean `net: {host}`?")
    if "/" in text:
        raise PolicyError(
            f"got {text}, expected a host and perhaps a port",
            code="bad-host",
            hint="paths and address ranges cannot be given here; a unix socket is written unix:/path",
        )
    if text[0] == "[":
        host, bracket, rest = text.partition("]")
        if not bracket or (rest and rest[0] != ":"):
            raise PolicyError(f"got {text}, expected [address]:port", code="bad-host", hint="for example [::1]:8080")
        return host + bracket, _parse_port(rest[1:], text) if rest else None
    if text.count(":") != 1:
        return text, None
    host, _, port = text.partition(":")
    return host, _parse_port(port, text)


def _parse_port(port: str, shown: str) -> int:
    if port == "*":
        raise PolicyError(f"got port * in {shown}", code="bad-port", hint="leave the port away to allow every port")
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and port[0] != "0" and int(port) <= 65535):
        raise PolicyError(
            f"got port {port!r} in {shown}, expected a number from 1 to 65535",
            code="bad-port",
            hint="service names are not accepted; leave :port away to allow every port",
        )
    return int(port)


def _compile_host(host: str, shown: str) -> tuple[str, str | None]:
    """The match and the canonical host of a rule."""
    if host == "*":
        return "any", None
    wildcard = host.startswith("*.")
    if "*" in host[wildcard:] or "?" in host:
        raise PolicyError(
            f"got {shown}, expected a * only as the whole first label",
            code="bad-glob",
            hint="*.example.com matches every name below example.com, * alone matches every host",
        )
    try:
        kind, canonical = canonical_host(host[2:] if wildcard else host)
    except HostFault as fault:
        raise PolicyError(
            f"got {shown}: {fault}", code="bad-host", hint="expected a name, *.name, an address or *"
        ) from None
    if wildcard:
        if kind != "name":
            raise PolicyError(
                f"got {shown}, but addresses have no wildcards", code="bad-host", hint="name each address"
            )
        return "suffix", canonical
    if kind == "address" and ":" not in host and canonical != host:
        raise PolicyError(
            f"got the address {host} in an ambiguous spelling", code="bad-host", hint=f"did you mean {canonical}?"
        )
    return kind, canonical
