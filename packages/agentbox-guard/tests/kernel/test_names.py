"""Names and links by which programs without a guard try to leave the rules' folders, and redirections that lead a
client elsewhere. Each attempt is made without the sandbox as well, where it works.
"""

import json
import os
import shutil
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from test_confined import Box

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel layers are Linux's")


@pytest.fixture
def box(tmp_path):
    """With a victim outside of the workspace, and links in it that lead to where nothing is yet."""
    made = Box(tmp_path)
    (tmp_path / "outside" / "victim").write_text("as it was\n")
    (made.ws / "file").symlink_to(tmp_path / "outside" / "made")
    (made.ws / "relative").symlink_to("../outside/made")
    (made.ws / "folder").symlink_to(tmp_path / "outside")
    (made.ws / "chain").symlink_to("folder")
    (made.ws / "inner").symlink_to("within")
    return made


LINKS = {
    "dangling": ("file", "w"),
    "dangling, relative": ("relative", "w"),
    "dangling, only to be added to": ("file", "a"),
    "a folder's link and a missing leaf": ("folder/made", "w"),
    "two links and a missing leaf": ("chain/made", "w"),
    "through the folder and back": ("folder/../outside/made", "w"),
    "with a slash in the middle": ("folder//./made", "w"),
    "over what is there": ("folder/victim", "w"),
}
OPENS = """
    import json, sys
    try:
        with open(sys.argv[1], sys.argv[2]) as file:
            file.write("changed")
        print(0)
    except OSError as error:
        print(error.errno)
    """


@pytest.mark.attempt("F1")
@pytest.mark.parametrize("way", LINKS)
def test_no_link_leads_a_write_outside(box, way):
    """Dangling links in a write root, to a file and over a folder; the entry has the place that they lead to."""
    path, mode = LINKS[way]
    argv = [*box.python(OPENS), path, mode]
    outside = box.folder / "outside"

    def held():
        return {name: (outside / name).read_text() for name in os.listdir(outside)}

    before = held()
    assert box.bare(*argv).stdout == "0\n" and held() != before
    shutil.rmtree(outside)
    outside.mkdir()
    (outside / "victim").write_text(before["victim"])
    done = box.run("write: .\nread: ../program.py\n", *argv)
    assert done.out == "13\n" and held() == before, done.err
    leaf = "victim" if "victim" in path else "made"
    assert done.denied() == {("fs.write", f"{outside}/{leaf}")}


def test_a_dangling_link_within_a_write_root_is_followed(box):
    """As without the sandbox: the file that it names is made."""
    argv = [*box.python(OPENS), "inner", "w"]
    done = box.run("write: .\nread: ../program.py\n", *argv)
    assert done.out == "0\n" and (box.ws / "within").read_text() == "changed"


NAMES = r"""
    import ctypes, json, os, sys
    libc = ctypes.CDLL(None, use_errno=True)
    secret, open_flags = os.fsencode(sys.argv[1]), (0, 0o100000)
    def opened(name, flags=0):
        fd = libc.open(name, flags, 0o600)
        if fd < 0:
            return ctypes.get_errno()
        data = os.read(fd, 20) if not flags & 3 else b""
        os.close(fd)
        return "secret" if b"secret" in data else 0
    page = ctypes.create_string_buffer(2)
    folder, leaf = os.path.split(secret)
    names = {
        "plain": secret, "two slashes": b"//" + secret.lstrip(b"/"), "many slashes": secret.replace(b"/", b"///"),
        "dots": folder + b"/./" + leaf, "back": folder + b"/outside/../" + leaf, "from here": b"../" + leaf,
        "up too far": b"../" * 60 + secret.lstrip(b"/"), "what follows a NUL": secret + b"\0/../ws/allowed",
        "long way": folder + b"/." * 1900 + b"/" + leaf,
    }
    told = {name: opened(path) for name, path in names.items()}
    other = {
        "trailing slash": opened(secret + b"/"), "too long": opened(b"a" * 300), "far too long": opened(b"/a" * 3000),
        "empty": opened(b""), "bad address": opened(ctypes.c_void_p(1)), "no name": opened(None),
        "not UTF-8": opened(b"\xff\xfe", os.O_CREAT | os.O_WRONLY), "not UTF-8, outside": opened(folder + b"/\xff"),
        "a line and a colour": opened(b"a\n\x1b[31m", os.O_CREAT | os.O_WRONLY),
    }
    print(json.dumps([told, other, sorted(os.fsencode(name).hex() for name in os.listdir(".") if name != "allowed")]))
    """


@pytest.mark.attempt("F8")
def test_no_spelling_of_a_name_gets_past_the_rules(box):
    """Slashes, dots, a NUL, the longest paths: the secret is one object. Names that are no text or no name at all end
    as they do without the sandbox, and are recorded as they are.
    """
    for name in ("file", "relative", "folder", "chain", "inner"):
        (box.ws / name).unlink()
    (box.ws / "allowed").write_text("hi\n")
    secret = box.folder / "secret"
    (box.folder / "\udcff").write_text("the secret\n")
    argv = [*box.python(NAMES), str(secret)]
    told, other, names = json.loads(box.bare(*argv).stdout)
    assert set(told.values()) == {"secret"} and len(told) == 9
    assert other.pop("not UTF-8, outside") == "secret"
    for name in os.listdir(os.fsencode(box.ws)):
        if name != b"allowed":
            os.unlink(os.fsencode(box.ws) + b"/" + name)
    done = box.run("write: .\nread: ../program.py\n", *argv)
    assert done.out, done.err
    within = json.loads(done.out)
    assert set(within[0].values()) == {13} and within[1].pop("not UTF-8, outside") == 13
    assert within[1:] == [other, names]
    assert done.denied() == {("fs.read", str(secret)), ("fs.read", f"{box.folder}/\udcff")}
    written = {entry["args"]["path"] for entry in done.of("fs.write")}
    assert written == {f"{box.ws}/\udcff\udcfe", f"{box.ws}/a\n\x1b[31m"}


class Redirecting(BaseHTTPRequestHandler):
    """Sends everybody to `there`, a server of its own that notes who came."""

    def do_GET(self):
        self.server.seen.append(self.path)
        self.send_response(302 if self.server.there else 200)
        if self.server.there:
            self.send_header("Location", self.server.there)
        self.send_header("Content-Length", "5")
        self.end_headers()
        self.wfile.write(b"hello")

    def log_message(self, *words):
        pass


@pytest.fixture
def servers():
    """The allowed server, which redirects, and the other one."""
    made = []
    for _ in range(2):
        server = HTTPServer(("127.0.0.1", 0), Redirecting)
        server.seen, server.there = [], ""
        threading.Thread(target=server.serve_forever, daemon=True).start()
        made.append(server)
    made[0].there = f"http://127.0.0.1:{made[1].server_port}/there"
    yield made
    for server in made:
        server.shutdown()
        server.server_close()


FETCH = {
    "curl": ["curl", "-sSL", "--max-time", "10", "URL"],
    "node": ["node", "-e", "fetch('URL').then(r => r.text()).then(console.log, e => process.exit(1))"],
    "urllib, unguarded": [sys.executable, "-I", "-c", "import urllib.request as u; print(u.urlopen('URL').read())"],
    "urllib, guarded": [sys.executable, "-c", "import urllib.request as u; print(u.urlopen('URL').read())"],
    "the SDK": [sys.executable, "-c", "from agentbox import client; print(client.get('URL').text)"],
}


@pytest.mark.attempt("N12")
@pytest.mark.parametrize("client", FETCH)
def test_a_redirection_is_decided_like_any_address(box, servers, client):
    """An allowed server sends its client to another one: the client does not get there, and the denial names it."""
    here, there = servers
    argv = [word.replace("URL", f"http://127.0.0.1:{here.server_port}/") for word in FETCH[client]]
    if not shutil.which(argv[0]):
        pytest.skip(f"{argv[0]}: not installed")
    if client != "the SDK":
        assert "hello" in box.bare(*argv).stdout
        assert there.seen.pop() == "/there" and here.seen.pop()
    done = box.run(f"read: .\nnet: 127.0.0.1:{here.server_port}\nexec: *\n", *argv)
    assert here.seen == ["/"] and not there.seen and "hello" not in done.out, done.err
    assert done.status != 0
    assert f"127.0.0.1:{there.server_port}" in {entry["target"] for entry in done.trace if entry["kind"] == "deny"}
    done = box.run("read: .\nnet: 127.0.0.1\nexec: *\n", *argv)
    assert there.seen == ["/there"] and "hello" in done.out, done.err
