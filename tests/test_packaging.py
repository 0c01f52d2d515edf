"""The wheels are what users get: built here, installed into clean environments, used outside the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PARTS = ("policy", "trace", "guard", "replay", "node", "cli")

pytestmark = pytest.mark.packaging


def run(*command: str | Path, cwd: Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a command as a user would: none of this test run's Python variables, output and errors together."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert not check or done.returncode == 0, done.stdout
    return done


@pytest.fixture(scope="session")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The six source archives and the six wheels, each wheel built from its source archive."""
    dist = tmp_path_factory.mktemp("dist")
    for part in PARTS:
        package = ROOT / "packages" / f"agentbox-{part}"
        run(sys.executable, "-m", "hatchling", "build", "-d", dist, "-t", "sdist", cwd=package)
        unpacked = tmp_path_factory.mktemp("unpacked")
        run("tar", "xf", next(dist.glob(f"agentbox_{part}-*.tar.gz")), "--strip-components=1", cwd=unpacked)
        run(sys.executable, "-m", "hatchling", "build", "-d", dist, "-t", "wheel", cwd=unpacked)
    return dist


class Venv:
    """A clean virtual environment that takes distributions from one folder and from nowhere else."""

    def __init__(self, path: Path, dist: Path) -> None:
        self.path = path
        self.dist = dist
        self.bin = path / "bin"
        # The environment of this test run may be a virtual one without pip: its base interpreter has ensurepip.
        base = getattr(sys, "_base_executable", sys.executable)
        run(base, "-m", "venv", path, cwd=path.parent)
        self.at_first = self.installed()

    def install(self, *names: str | Path) -> None:
        run(self.bin / "pip", "install", "-q", "--no-index", "--find-links", self.dist, *names, cwd=self.path)

    def installed(self) -> set[str]:
        listed = run(self.bin / "pip", "list", "--format=freeze", "--disable-pip-version-check", cwd=self.path).stdout
        return {line.partition("==")[0].lower().replace("_", "-") for line in listed.splitlines() if "==" in line}

    def python(self, code: str) -> str:
        return run(self.bin / "python", "-c", code, cwd=self.path).stdout


@pytest.fixture(scope="session")
def user(tmp_path_factory: pytest.TempPathFactory, archives: Path) -> Venv:
    """What a user has after `pip install agentbox-cli`."""
    venv = Venv(tmp_path_factory.mktemp("user") / "venv", archives)
    venv.install("agentbox-cli")
    return venv


def test_six_wheels_and_six_source_archives(archives: Path) -> None:
    """Each distribution gives one wheel and one source archive, and nothing else is built."""
    names = sorted(path.name for path in archives.iterdir())
    assert [name for name in names if name.endswith(".whl")] == sorted(
        f"agentbox_{p}-0.1.0-py3-none-any.whl" for p in PARTS
    )
    assert [name for name in names if name.endswith(".tar.gz")] == sorted(f"agentbox_{p}-0.1.0.tar.gz" for p in PARTS)


@pytest.mark.parametrize("part", PARTS)
def test_a_wheel_holds_its_own_part_whole(archives: Path, part: str) -> None:
    """A wheel holds every file of its part, its licence and type marker, and nothing of another part."""
    with zipfile.ZipFile(next(archives.glob(f"agentbox_{part}-*.whl"))) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
        infos = {name.partition("/")[2] for name in wheel.namelist() if ".dist-info/" in name}
    source = ROOT / "packages" / f"agentbox-{part}" / "src"
    expected = {
        str(path.relative_to(source))
        for path in source.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert names == expected
    assert f"agentbox/{part}/py.typed" in names
    assert "agentbox/__init__.py" not in names
    assert "licenses/LICENSE" in infos


def test_the_trace_alone_is_enough_for_an_exporter(tmp_path: Path, archives: Path) -> None:
    """agentbox-trace installs without the others, and imports."""
    venv = Venv(tmp_path / "venv", archives)
    venv.install("agentbox-trace")
    assert venv.installed() - venv.at_first == {"agentbox-trace"}
    assert venv.python("import agentbox.trace; print(agentbox.trace.__name__)") == "agentbox.trace\n"


def test_the_command_brings_exactly_the_six(user: Venv) -> None:
    """agentbox-cli pulls the six distributions and nothing else."""
    assert user.installed() - user.at_first == {f"agentbox-{part}" for part in PARTS}


def test_every_part_imports_from_the_wheels(user: Venv) -> None:
    """The six wheels share the namespace."""
    names = ["agentbox.client", *(f"agentbox.{part}" for part in PARTS)]
    assert user.python(f"import {', '.join(names)}; print(len(agentbox.__path__))") == "1\n"


def test_the_quickstart_of_the_readme_does_what_it_says(user: Venv) -> None:
    """The commands of README's quickstart, typed in an empty folder, give the lines that README shows."""
    done = run(
        sys.executable, ROOT / "tests" / "quickstart.py", ROOT / "README.md", user.bin, cwd=user.path, check=False
    )
    assert done.returncode == 0, done.stdout


FOREIGN = """\
Metadata-Version: 2.1
Name: agentbox-foreign
Version: 1
"""


def test_a_foreign_package_over_the_namespace_is_named(tmp_path: Path, archives: Path) -> None:
    """A distribution with an `agentbox/__init__.py` of its own is reported by name and file, with the way out."""
    venv = Venv(tmp_path / "venv", archives)
    venv.install("agentbox-cli")
    agentbox = venv.bin / "agentbox"
    assert run(agentbox, "--version", cwd=tmp_path).stdout == "agentbox 0.1.0\n"

    site = Path(venv.python("import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    (site / "agentbox" / "__init__.py").write_text("raise RuntimeError('never imported')\n")
    info = site / "agentbox_foreign-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(FOREIGN)
    (info / "RECORD").write_text("agentbox/__init__.py,,\n")

    done = run(agentbox, "--version", cwd=tmp_path, check=False)
    assert done.returncode == 70
    assert done.stdout == (
        f"agentbox: the distribution agentbox-foreign owns '{site}/agentbox/__init__.py', which hides the agentbox"
        " distributions (pip uninstall agentbox-foreign, then pip install --force-reinstall agentbox-cli)\n"
    )
