"""`http.request` against real loopback servers: redirects, policy on every hop, limits, time and broken answers."""

from __future__ import annotations

import errno
import hashlib
import json
import shutil
import socket
import ssl
import subprocess
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.waiting import PATIENCE, in_seconds, joined, seconds_of

from agentbox.guard.context import EffectDenied, EffectUsage
from agentbox.guard.effects import EFFECTS, _http, _url, http_request

HTTP = EFFECTS["http.request"]


def ask(context, url, method="GET", **args):
    return HTTP.perform(HTTP.normalise({"method": method, "url": url, **args}, context), context)


def redirect(status, location):
    return lambda handler: handler.answer(status, Location=location)


@pytest.fixture
def raw(services):
    """A maker of one-shot servers that send chunks, with a pause before each, to who connects; gives the URL."""
    listeners = []

    def make(*chunks, pause=0.0):
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)
        stop = threading.Event()

        def serve():
            sock, _ = listener.accept()
            with sock:
                sock.recv(65536)
                for chunk in chunks:
                    if stop.wait(pause):
                        return
                    try:
                        sock.sendall(chunk)
                    except OSError:
                        return

        threading.Thread(target=serve, daemon=True).start()
        port = listener.getsockname()[1]
        services.hosts.add(("127.0.0.1", port))
        return f"http://127.0.0.1:{port}/"

    yield make
    for listener in listeners:
        listener.close()


def test_get_gives_status_headers_body_and_hash(server, context):
    """An answer comes back whole; header names are in lower case and repeated ones joined, cookies with line ends."""

    def route(handler):
        handler.send_response(200)
        for name, value in (("X-A", "1"), ("x-a", "2"), ("Set-Cookie", "a=1"), ("Set-Cookie", "b=2")):
            handler.send_header(name, value)
        handler.send_header("Content-Length", "2")
        handler.end_headers()
        handler.wfile.write(b"ok")

    server.routes["/x"] = route
    result = ask(context, server.url + "/x?q=1#part")
    assert (result["status"], result["body"], result["url"], result["hops"]) == (200, b"ok", server.url + "/x?q=1", [])
    assert result["sha256"] == hashlib.sha256(b"ok").hexdigest()
    assert (result["headers"]["x-a"], result["headers"]["set-cookie"]) == ("1, 2", "a=1\nb=2")
    method, path, headers, body = server.seen[0]
    assert (method, path, body) == ("GET", "/x?q=1", b"")
    assert headers["host"] == f"127.0.0.1:{server.port}"
    assert headers["accept-encoding"] == "identity"


@pytest.mark.parametrize("status", [201, 204, 304, 404, 500, 503])
def test_every_status_is_a_result(status, server, context):
    """HTTP errors are answers, not failures."""
    server.routes["/"] = lambda handler: handler.answer(status, b"" if status in (204, 304) else b"body")
    assert ask(context, server.url)["status"] == status


def test_a_body_is_sent_with_its_length(server, context):
    """A request body arrives as it is, and a POST without one says that its length is 0."""
    server.routes["/"] = lambda handler: handler.answer(200)
    ask(context, server.url, "post", body={"base64": "AAH/"}, headers={"Content-Type": "application/x-thing"})
    ask(context, server.url, "POST")
    assert server.seen[0][3] == b"\x00\x01\xff"
    assert server.seen[0][2]["content-type"] == "application/x-thing"
    assert server.seen[1][2]["content-length"] == "0"


def test_a_host_that_no_rule_allows_is_never_dialled(server, context, services):
    """Name and port are decided before the connection is made; the same request goes through with the rule."""
    server.routes["/"] = lambda handler: handler.answer(200)
    services.hosts.clear()
    with pytest.raises(EffectDenied) as caught:
        ask(context, server.url)
    assert caught.value.denial.target == f"127.0.0.1:{server.port}"
    assert server.seen == []
    services.hosts.add(("127.0.0.1", server.port))
    assert ask(context, server.url)["status"] == 200


def test_the_pinned_address_is_dialled_under_the_name(server, context, services):
    """The address comes from the run's resolver and the Host header from the URL, whatever the system resolver says."""
    services.names["Example.invalid".lower()] = "127.0.0.1"
    services.hosts.add(("example.invalid", server.port))
    server.routes["/"] = lambda handler: handler.answer(200)
    assert ask(context, f"http://EXAMPLE.invalid.:{server.port}/")["status"] == 200
    assert server.seen[0][2]["host"] == f"example.invalid:{server.port}"


def test_the_next_address_is_tried(server, context, services):
    """An address that refuses does not end the request while there is another."""
    services.names["two.invalid"] = ["127.0.0.2", "127.0.0.1"]
    services.hosts.add(("two.invalid", server.port))
    server.routes["/"] = lambda handler: handler.answer(200)
    assert ask(context, f"http://two.invalid:{server.port}/")["status"] == 200


def test_redirects_are_followed_and_listed(server, context):
    """The answer at the end counts; every redirect on the way is in `hops`."""
    server.routes["/a"] = redirect(302, "b?x=1")
    server.routes["/b"] = redirect(307, f"{server.url}/c")
    server.routes["/c"] = lambda handler: handler.answer(200, b"end")
    result = ask(context, server.url + "/a")
    assert (result["body"], result["url"]) == (b"end", server.url + "/c")
    hops = [{"status": 302, "url": server.url + "/a"}, {"status": 307, "url": server.url + "/b?x=1"}]
    assert result["hops"] == hops


@pytest.mark.attempt("N12")
def test_a_redirect_to_a_host_that_no_rule_allows_is_denied(server, make_server, context, services):
    """Every hop is decided like the first; with a rule for the second host the same chain goes through."""
    other = make_server()
    server.routes["/"] = redirect(302, other.url + "/secret")
    other.routes["/secret"] = lambda handler: handler.answer(200, b"secret")
    with pytest.raises(EffectDenied) as caught:
        ask(context, server.url)
    assert caught.value.denial.target == f"127.0.0.1:{other.port}"
    assert other.seen == []
    services.hosts.add(("127.0.0.1", other.port))
    assert ask(context, server.url)["body"] == b"secret"


@pytest.mark.parametrize(
    ("status", "method", "expected"),
    [
        (301, "POST", ("GET", b"")), (302, "POST", ("GET", b"")), (303, "POST", ("GET", b"")),
        (301, "PUT", ("PUT", b"data")), (303, "PUT", ("GET", b"")), (303, "HEAD", ("HEAD", b"data")),
        (307, "POST", ("POST", b"data")), (308, "PUT", ("PUT", b"data")), (302, "GET", ("GET", b"data")),
    ],
)  # fmt: skip
def test_methods_change_with_a_redirect_as_rfc_9110_says(status, method, expected, server, context):
    """303 becomes GET, 301 and 302 only for POST, 307 and 308 keep method and body."""
    server.routes["/"] = redirect(status, "/end")
    server.routes["/end"] = lambda handler: handler.answer(200)
    ask(context, server.url, method, body={"text": "data"}, headers={"Content-Type": "text/x"})
    seen = server.seen[1]
    assert (seen[0], seen[3]) == expected
    assert ("content-type" in seen[2]) == (expected[1] != b"")


def test_credentials_stay_with_their_origin(server, make_server, context, services):
    """A redirect to another port is another origin: credentials are dropped, other headers stay."""
    other = make_server()
    services.hosts.add(("127.0.0.1", other.port))
    server.routes["/a"] = redirect(302, "/b")
    server.routes["/b"] = redirect(302, other.url + "/c")
    other.routes["/c"] = lambda handler: handler.answer(200)
    secret = {"Authorization": "Bearer x", "Cookie": "a=b", "X-Api-Key": "k", "X-Our-Token": "t"}
    ask(context, server.url + "/a", headers={**secret, "X-Other": "1"})
    assert {name.lower() for name in secret} <= set(server.seen[1][2])
    assert not {name.lower() for name in secret} & set(other.seen[0][2])
    assert other.seen[0][2]["x-other"] == "1"


def test_redirects_in_a_circle_end(server, context):
    """After ten redirects the call fails; the server was asked eleven times."""
    server.routes["/"] = redirect(302, "/")
    error = ask(context, server.url + "/")["error"]
    assert (error["type"], error["text"]) == ("http", f"GET {server.url}: more than 10 redirects")
    assert len(server.seen) == 11


@pytest.mark.parametrize(
    "location", ["file:///etc/passwd", "ftp://x/", "http://user:pw@127.0.0.1/", "http://[::1", "http://127.1/"]
)
def test_redirects_to_odd_places_fail(location, server, context):
    """Only plain http and https URLs are followed."""
    server.routes["/"] = redirect(302, location)
    error = ask(context, server.url)["error"]
    assert error["type"] == "http"
    assert "redirected to nowhere" in error["text"]
    assert "pw" not in error["text"]


def test_an_empty_location_is_an_answer(server, context):
    """A redirect without a place to go to is returned as it is."""
    server.routes["/"] = lambda handler: handler.answer(302, b"where?")
    assert ask(context, server.url)["status"] == 302


def test_a_closed_port_is_a_result_with_an_errno(context, services):
    """A refused connection is recorded as a failure, so that replay can serve it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    services.hosts.add(("127.0.0.1", port))
    error = ask(context, f"http://127.0.0.1:{port}/?token=secret")["error"]
    assert error == {
        "type": "http",
        "text": f"GET http://127.0.0.1:{port}: connection refused",
        "errno": errno.ECONNREFUSED,
        "hops": [],
    }


def test_an_unknown_name_is_a_result(context, services):
    """A name without addresses is a failure that says so."""
    services.names["none.invalid"] = socket.gaierror(-2, "Name or service not known")
    services.hosts.add(("none.invalid", 80))
    assert (
        ask(context, "http://none.invalid/")["error"]["text"] == "GET http://none.invalid: the name cannot be resolved"
    )


def test_a_silent_server_costs_no_more_than_the_timeout(raw, context):
    """A server that never answers is left after `timeout` seconds."""
    seconds, answer = seconds_of(lambda: ask(context, raw(b"late", pause=10 * PATIENCE), timeout=0.2))
    assert answer["error"]["errno"] == errno.ETIMEDOUT
    assert "no complete answer in time" in answer["error"]["text"]
    assert seconds < PATIENCE


@pytest.mark.parametrize("part", ["headers", "body"])
def test_a_dripping_server_costs_no_more_than_the_timeout(part, raw, context):
    """The timeout is for the whole exchange: bytes that come one by one do not start it anew."""
    start = b"HTTP/1.1 200 OK\r\nX: " if part == "headers" else b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n"
    seconds, answer = seconds_of(lambda: ask(context, raw(start, *[b"x"] * 90_000, pause=0.1), timeout=0.3))
    assert answer["error"]["errno"] == errno.ETIMEDOUT
    assert seconds < PATIENCE


def test_a_chunked_body_is_put_together(raw, context):
    """Transfer coding is undone."""
    url = raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", b"2\r\nde\r\n0\r\n\r\n")
    assert ask(context, url)["body"] == b"abcde"


def test_a_body_that_ends_with_the_connection_is_complete(raw, context):
    """HTTP/1.0 servers end a body by closing."""
    assert ask(context, raw(b"HTTP/1.0 200 OK\r\n\r\nall of it"))["body"] == b"all of it"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", "ended before it was complete"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab", "ended before it was complete"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", "ended before it was complete"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "ended before it was complete"),
        (b"garbage\r\n\r\n", "the answer is not valid HTTP (BadStatusLine"),
        (b"HTTP/1.1 99999 Odd\r\n\r\n", "the answer is not valid HTTP (BadStatusLine"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200 + b"\r\n", "the answer is not valid HTTP (HTTPException"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70000 + b"\r\n\r\n", "the answer is not valid HTTP (LineTooLong"),
        (b"", "the server closed the connection without an answer"),
    ],
)
def test_broken_answers_are_failures(answer, said, raw, context):
    """An answer that is cut or garbled is never taken for a complete one."""
    error = ask(context, raw(answer))["error"]
    assert error["type"] == "http"
    assert said in error["text"]


LINES = st.lists(
    st.one_of(
        st.binary(max_size=40),
        st.builds(
            lambda name, value: name + b": " + value,
            st.sampled_from([b"Content-Length", b"Transfer-Encoding", b"Location", b"Set-Cookie", b"Connection", b"X"]),
            st.one_of(st.sampled_from([b"chunked", b"-1", b"9" * 5000, b"close", b"/"]), st.binary(max_size=20)),
        ),
    ),
    max_size=6,
)


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from([b"HTTP/1.1 200 OK", b"HTTP/1.0 302 X", b"HTTP/1.1 100 C", b"HTTP"]), LINES, st.binary(max_size=60)
)
def test_no_answer_crashes_the_supervisor(first, lines, body):
    """Whatever bytes a server sends, the exchange ends with an answer or with `Failed`."""
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.MonkeyPatch.context() as patch:
        patch.setattr(_http, "_dial", lambda *_: ours)
        theirs.sendall(b"\r\n".join([first, *lines, b"", body]))
        theirs.shutdown(socket.SHUT_WR)
        target, deadline = _url.parse("http://h/"), in_seconds(PATIENCE)
        try:
            answer = _http.exchange("GET", target, {}, None, addresses=[], deadline=deadline)
        except _http.Failed as failure:
            assert str(failure).isprintable()
        else:
            assert 100 <= answer.status <= 999
            json.dumps(answer.headers)


def test_a_body_over_the_limit_fails(raw, context, monkeypatch):
    """A body larger than the limit is given up, also when the server does not say its size."""
    monkeypatch.setattr(_http, "LIMIT", 1000)
    error = ask(context, raw(b"HTTP/1.0 200 OK\r\n\r\n", b"x" * 1001))["error"]
    assert (error["errno"], "larger than 1000 bytes" in error["text"]) == (errno.EFBIG, True)
    assert ask(context, raw(b"HTTP/1.0 200 OK\r\n\r\n", b"x" * 1000))["status"] == 200


def test_an_early_answer_to_a_large_body_counts(context, services):
    """A server may answer 413 and hang up before it has read everything."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        sock, _ = listener.accept()
        with sock:
            sock.recv(1000)
            sock.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
            sock.shutdown(socket.SHUT_WR)
            while sock.recv(65536):
                pass

    threading.Thread(target=serve, daemon=True).start()
    with listener:
        port = listener.getsockname()[1]
        services.hosts.add(("127.0.0.1", port))
        assert ask(context, f"http://127.0.0.1:{port}/", "PUT", body=b"x" * 3_000_000)["status"] == 413


@pytest.mark.attempt("N3")
def test_proxies_are_never_used(server, context, monkeypatch):
    """Proxy variables of the user do not divert what the policy decided."""
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    server.routes["/"] = lambda handler: handler.answer(200)
    assert ask(context, server.url)["status"] == 200


@pytest.mark.attempt("N4")
@pytest.mark.parametrize(
    ("url", "said"),
    [
        (None, "expected a URL as text"), ("", "expected a URL as text"), ("example.com", "starts with http://"),
        ("file:///etc/passwd", "starts with http://"), ("http://", "expected a host name"),
        ("http://u:pw@h/", "expected none; use an Authorization header"), ("http://a b/", "expected no spaces"),
        ("http://h/\r\nX: y", "expected no spaces"), ("http://h\t/", "expected no spaces"),
        ("http://h:99999/", "valid host and port"), ("http://h:0/", "from 1 to 65535"), ("http://h:x/", "valid host"),
        ("http://[::1/", "valid host and port"), ("http://[::zz]/", "expected a valid"),
        ("http://127.1/", "four decimal numbers"), ("http://0x7f000001/", "four decimal numbers"),
        ("http://2130706433/", "four decimal numbers"), ("http://0177.0.0.1/", "four decimal numbers"),
        ("http://a%2eb/", "expected a host name"), ("http://h\\@evil/", "expected"),
        ("http://a..b/", "expected a host name"),
    ],
)  # fmt: skip
def test_urls_that_could_be_misread_are_refused(url, said, context):
    """One clear line, and nothing is decided or dialled."""
    with pytest.raises(EffectUsage, match=r"^http\.request: url: got ") as caught:
        ask(context, url)
    assert said in str(caught.value)
    assert "pw" not in str(caught.value)
    assert context.services.decided == []


@pytest.mark.parametrize(
    ("url", "normal"),
    [
        ("HTTP://Example.COM:80", "http://example.com/"), ("https://h:443/a?b#c", "https://h/a?b"),
        ("http://h./x", "http://h/x"), ("http://bücher.example/ä?ö", "http://xn--bcher-kva.example/%C3%A4?%C3%B6"),
        ("http://[::0001]:8080/", "http://[::1]:8080/"), ("http://[::ffff:7f00:1]/", "http://127.0.0.1/"),
        ("http://127.0.0.1/%41|[]", "http://127.0.0.1/%41|[]"),
    ],
)  # fmt: skip
def test_urls_are_recorded_in_one_spelling(url, normal, context):
    """Replay matches on the URL, so equal ones must look equal."""
    assert _url.parse(url).url == normal


@given(st.text(max_size=60))
def test_parsing_a_url_is_total_and_stable(text):
    """Whatever the text, it is refused or has one spelling, which names the same host, port and path again."""
    for candidate in (text, "http://" + text, "https://h/" + text):
        try:
            target = _url.parse(candidate)
        except _url.BadURL:
            continue
        again = _url.parse(target.url)
        assert (again.url, again.host, again.port, again.path) == (target.url, target.host, target.port, target.path)
        assert target.url.isascii()
        assert not set(target.url) & set(" \r\n\t")


@pytest.mark.parametrize(
    "headers",
    [
        {"X": "a\r\nHost: evil"}, {"X": "a\nb"}, {"X\r\nY": "a"}, {"X: y": "a"}, {"": "a"}, {"X": 1}, {"X": "\0"},
        {"X": "\u4e2d"}, {"Host": "evil"}, {"content-length": "0"}, {"Transfer-Encoding": "chunked"},
        {"X": "a", "x": "b"}, ["X"], {"Proxy-Connection": "x"},
    ],
)  # fmt: skip
def test_headers_that_would_change_the_request_are_refused(headers, server, context):
    """No header can inject a line, name another host or move the end of the request."""
    with pytest.raises(EffectUsage, match=r"^http\.request: headers: "):
        ask(context, server.url, headers=headers)
    assert server.seen == []


@pytest.mark.parametrize(
    "args",
    [
        {"method": ""}, {"method": 1}, {"method": "G T"}, {"method": "GET\r\n"}, {"method": "CONNECT"},
        {"timeout": 0}, {"timeout": -1}, {"timeout": float("nan")}, {"timeout": "1"}, {"timeout": 1e9},
        {"timeout": True}, {"body": "x"},
    ],
)  # fmt: skip
def test_malformed_args_are_usage_errors(args, server, context):
    """Whatever a hostile agent sends is one clear line."""
    with pytest.raises(EffectUsage, match=r"^http\.request: \w+: got .*, expected "):
        HTTP.normalise({"method": "GET", "url": server.url, **args}, context)


def test_identity_is_method_url_and_body(server, context):
    """Replay matches on what is asked for: headers may differ, a body may not, whatever form it has in the trace."""

    def make(**args):
        return HTTP.identity(HTTP.normalise({"method": "POST", "url": server.url, **args}, context))

    plain = make(body={"text": "x"}, headers={"A": "1"}, timeout=3)
    assert plain == make(body={"base64": "eA=="}, headers={"A": "2"})
    assert plain != make(body={"text": "y"})
    assert plain != make()
    assert HTTP.identity({"method": "POST", "url": server.url + "/", "body": {"text": "x"}}) == plain


@pytest.fixture
def tls_server(tmp_path, monkeypatch):
    """A TLS server on loopback with a self-made certificate for `box.test`; gives its port and the names asked for."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("needs the openssl program to make a certificate")
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    make = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", cert, "-days", "2"]
    subprocess.run(
        [*make, "-subj", "/CN=box.test", "-addext", "subjectAltName=DNS:box.test"], check=True, capture_output=True
    )
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(cert, key)
    names = []
    tls.sni_callback = lambda sock, name, ctx: names.append(name)
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        while True:
            try:
                sock, _ = listener.accept()
                with tls.wrap_socket(sock, server_side=True) as wrapped:
                    wrapped.recv(65536)
                    wrapped.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\ntls")
            except ssl.SSLError:
                continue
            except OSError:
                return

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    _http._tls.cache_clear()
    monkeypatch.setenv("SSL_CERT_FILE", str(cert))
    yield listener.getsockname()[1], names
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    assert joined(thread)
    _http._tls.cache_clear()


def test_tls_is_spoken_for_the_name_and_verified(tls_server, context, services):
    """The certificate must be for the URL's name, which is also the SNI; the address is the pinned one."""
    port, names = tls_server
    services.names.update({"box.test": "127.0.0.1", "other.test": "127.0.0.1"})
    services.hosts.update({("box.test", port), ("other.test", port)})
    assert ask(context, f"https://box.test:{port}/")["body"] == b"tls"
    assert names == ["box.test"]
    error = ask(context, f"https://other.test:{port}/")["error"]
    assert "the server's certificate is not valid: Hostname mismatch" in error["text"]


def test_an_untrusted_certificate_is_a_failure(tls_server, context, services, monkeypatch):
    """Without trust there is no answer."""
    port, _ = tls_server
    monkeypatch.delenv("SSL_CERT_FILE")
    services.names["box.test"] = "127.0.0.1"
    services.hosts.add(("box.test", port))
    assert "certificate is not valid: self" in ask(context, f"https://box.test:{port}/")["error"]["text"]


def test_tls_to_a_plain_server_is_a_failure(server, context, services):
    """A server that does not speak TLS is one clear line."""
    error = ask(context, f"https://127.0.0.1:{server.port}/", timeout=PATIENCE)["error"]
    assert error["type"] == "http"
    assert "TLS failed: " in error["text"]
    assert http_request.MAX_HOPS == 10
