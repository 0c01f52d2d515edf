"""One policy, one verdict: whoever asks, with a guard or without one, interpreted or compiled, in any environment."""

import shutil
import subprocess
import sys

import pytest
from test_confined import Box
from test_spellings import server  # noqa: F401 (a fixture)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel layers are Linux's")

PYTHON = """
import socket, sys
def told(act):
    try:
        return act()
    except OSError:
        return "-"
allowed, secret, port, out = sys.argv[1:]
print(told(lambda: open(allowed).read().strip()), told(lambda: open(secret).read().strip()),
      told(lambda: socket.create_connection(("127.0.0.1", int(port)), 5).recv(9).decode()),
      told(lambda: open(out, "w").write("x")), sep=",")
"""
SHELL = """
read_file() { cat "$1" 2>/dev/null || printf -; }
answer() { exec 3<>"/dev/tcp/127.0.0.1/$1" && head -c 5 <&3; }
write_file() { printf x > "$1" && printf 1; }
or_not() { "$@" 2>/dev/null || printf -; }
echo "$(read_file "$1"),$(read_file "$2"),$(or_not answer "$3"),$(or_not write_file "$4")"
"""
NODE = """
const [allowed, secret, port, out] = process.argv.slice(1), fs = require('fs');
const told = act => { try { return act(); } catch { return '-'; } };
const read = path => told(() => fs.readFileSync(path, 'utf8').trim());
const one = require('net').connect(+port, '127.0.0.1');
const end = answer => {
  console.log([read(allowed), read(secret), answer, told(() => fs.writeFileSync(out, 'x') || 1)].join());
  process.exit();
};
one.on('data', data => end(data.toString())).on('error', () => end('-'));
"""
PERL = """
use IO::Socket::INET;
my ($allowed, $secret, $port, $out) = @ARGV;
sub content { open(my $f, '<', $_[0]) or return '-'; my $l = <$f>; chomp $l; return $l; }
my $s = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $port, Timeout => 5);
my $answer = '-'; if ($s) { read($s, $answer, 5); }
my $f; my $wrote = open($f, '>', $out) ? 1 : '-';
print join(',', content($allowed), content($secret), $answer, $wrote), "\\n";
"""
C = r"""
#include <arpa/inet.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
static char *content(char *path, char *room) {
  int f = open(path, O_RDONLY), n = f < 0 ? 0 : read(f, room, 99);
  if (f < 0) return "-";
  room[strcspn(room, "\n")] = 0;
  return room;
}
int main(int n, char **v) {
  char one[100] = "", two[100] = "", answer[100] = "-";
  struct sockaddr_in place = {AF_INET, htons(atoi(v[3]))};
  inet_aton("127.0.0.1", &place.sin_addr);
  int s = socket(AF_INET, SOCK_STREAM, 0);
  if (!connect(s, (void *)&place, sizeof place)) read(s, answer, 5);
  int out = open(v[4], O_CREAT | O_WRONLY, 0600);
  printf("%s,%s,%s,%s\n", content(v[1], one), content(v[2], two), answer, out < 0 ? "-" : "1");
}
"""
PROGRAMS = {
    "guarded Python": [sys.executable, "-c", PYTHON],
    "Python without site and variables": [sys.executable, "-I", "-S", "-E", "-c", PYTHON],
    "Python in an empty environment": ["env", "-i", sys.executable, "-I", "-c", PYTHON],
    "another Python": ["/usr/bin/python3", "-c", PYTHON],
    "guarded Node": ["node", "-e", NODE],
    "Node in an empty environment": ["env", "-i", "NODE", "-e", NODE],
    "a shell": ["bash", "-c", SHELL, "bash"],
    "Perl": ["perl", "-e", PERL],
    "a static program": ["STATIC"],
}


@pytest.fixture
def box(tmp_path):
    return Box(tmp_path)


def command(box, name):
    words = [shutil.which("node") or "node" if word == "NODE" else word for word in PROGRAMS[name]]
    if words == ["STATIC"]:
        if not shutil.which("gcc"):
            pytest.skip("gcc: not installed")
        (box.folder / "asks.c").write_text(C)
        words = [str(box.folder / "asks")]
        done = subprocess.run(["gcc", "-w", "-static", "-o", words[0], f"{words[0]}.c"], capture_output=True)
        if done.returncode:
            pytest.skip("a static C library: not installed")
    if not shutil.which(words[0]):
        pytest.skip(f"{words[0]}: not installed")
    return words


@pytest.mark.attempt("P12")
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_verdict_is_the_policys(box, server, name):  # noqa: F811
    """A file that may be read is, another is not, nor is a server reached or a file made outside: by any program."""
    (box.ws / "allowed").write_text("hi\n")
    out = box.folder / "outside" / "made"
    argv = [*command(box, name), "allowed", str(box.folder / "secret"), str(server.port), str(out)]
    assert box.bare(*argv).stdout == "hi,the secret,hello,1\n"
    out.unlink()
    server.hits.clear()
    done = box.run(f"read: ./allowed\nexec: *\nexec: {sys.executable}\n", *argv)
    assert done.out == "hi,-,-,-\n" and server.hits == [] and not out.exists(), done.err
    denied = done.denied()
    assert {("fs.read", str(box.folder / "secret")), ("net.connect", f"127.0.0.1:{server.port}")} <= denied
    assert ("fs.write", str(out)) in denied
    (read,) = [entry for entry in done.of("fs.read") if entry["args"]["path"] == f"{box.ws}/allowed"]
    assert len(read["args"]["sha256"]) == 64
