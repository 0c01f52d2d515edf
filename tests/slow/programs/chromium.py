"""Chromium without a head: the document of a page that a server on loopback gives."""

import http.server
import threading
from pathlib import Path

from program import Done, Program


class Page(http.server.BaseHTTPRequestHandler):
    """One page, whose text its own script makes."""

    def do_GET(self) -> None:
        body = b"<!doctype html><p id=p></p><script>p.textContent = 'sum ' + (40 + 2)</script>"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def prepare(folder: Path) -> dict[str, str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return {"port": str(server.server_port)}


def works(folder: Path, done: Done) -> bool:
    return done.returncode == 0 and "sum 42" in done.stdout


DUMP = Program(
    name="chromium",
    argv=("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--user-data-dir={folder}/out/profile",
          "--dump-dom", "http://127.0.0.1:{port}/"),
    policy="read: /\nwrite: ./out/\nexec: *\nnet: 127.0.0.1:{port}\n",
    works=works,
    commands=("chromium",),
    debian=("chromium",),
    prepare=prepare,
    note="headless, --dump-dom of a loopback page",
)  # fmt: skip
