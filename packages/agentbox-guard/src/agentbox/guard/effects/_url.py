"""A URL taken apart the one way that both the policy and the connection use, so that they cannot differ.

Whatever two parsers could read differently is refused, never repaired.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_PORTS = {"http": 80, "https": 443}
_HOST = frozenset("abcdefghijklmnopqrstuvwxyz0123456789._-")


class BadURL(ValueError):
    """The text is one line: what was got, what was expected."""


class Target:
    """Where a request goes: `scheme`, `host` (ASCII name or address, no brackets), `port`, `path` with its query."""

    __slots__ = ("host", "path", "port", "scheme")

    def __init__(self, scheme: str, host: str, port: int, path: str) -> None:
        self.scheme = scheme
        self.host = host
        self.port = port
        self.path = path

    @property
    def authority(self) -> str:
        """Host and port as a URL and a Host header spell them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def origin(self) -> str:
        """Scheme, host and port: what credentials belong to (RFC 6454)."""
        return f"{self.scheme}://{self.authority}"

    @property
    def url(self) -> str:
        return self.origin + self.path


def parse(url: Any) -> Target:
    """Take an absolute `http` or `https` URL apart, its fragment dropped. Raises `BadURL`."""
    from urllib.parse import quote, urlsplit

    if type(url) is not str or not url:
        raise BadURL(f"got {url!r}, expected a URL as text")
    if any(char <= " " or char == "\x7f" for char in url):
        # urlsplit() drops tabs and line ends silently.
        raise BadURL(f"got {url!r}, expected no spaces or control characters; percent-encode them")
    try:
        parts = urlsplit(url)
        name, port = parts.hostname, parts.port
    except ValueError as error:
        raise BadURL(f"got {url!r}, expected a valid host and port ({error})") from None
    if parts.scheme not in _PORTS:
        raise BadURL(f"got {url!r}, expected a URL that starts with http:// or https://")
    if "@" in parts.netloc:
        raise BadURL("got a URL with a user name or password, expected none; use an Authorization header")
    if port == 0:
        raise BadURL(f"got {url!r}, expected a port from 1 to 65535")
    path = parts.path or "/"
    if parts.query:
        path += "?" + parts.query
    # Only what is not ASCII is encoded (as UTF-8); `%41` and the rest stay what they are.
    path = quote(path, safe="".join(map(chr, range(0x21, 0x7F))), errors="surrogatepass")
    return Target(parts.scheme, _host(name or "", url), port or _PORTS[parts.scheme], path)


def join(base: Target, location: str) -> Target:
    """The target of a `Location` header on an answer from `base` (RFC 9110, 10.2.2). Raises `BadURL`."""
    from urllib.parse import urljoin

    try:
        url = urljoin(base.url, location)
    except ValueError as error:
        raise BadURL(f"got {location!r}, expected a valid URL ({error})") from None
    return parse(url)


def _host(name: str, url: str) -> str:
    if ":" in name:
        import ipaddress

        try:
            address = ipaddress.IPv6Address(name)
            return str(address.ipv4_mapped or address)  # what a rule for the IPv4 address says holds for its other form
        except ValueError:
            raise BadURL(f"got {url!r}, expected a valid IPv6 address in the brackets") from None
    try:
        host = name.encode("idna").decode("ascii").lower().removesuffix(".")
    except UnicodeError:
        host = ""
    if not host or not _HOST.issuperset(host):
        raise BadURL(f"got {url!r}, expected a host name or address")
    return _dotted(host, url)


def _dotted(host: str, url: str) -> str:
    """Refuse `0x7f.1`, `127.1` and `2130706433`: addresses to a resolver, names to a rule (WHATWG URL, 3.5)."""
    last = host.rpartition(".")[2]
    if last.isdigit() or last.startswith("0x"):
        import ipaddress

        try:
            return str(ipaddress.IPv4Address(host))
        except ValueError:
            raise BadURL(f"got {url!r}, expected an IPv4 address as four decimal numbers") from None
    return host
