"""Native code in a folder that the run may write: with the kernel layers it gains nothing and is loaded from where
packages are installed; elsewhere and with the guard alone it is refused, and the refusal names the way out.
"""

import importlib.machinery
import os
import shutil
import subprocess
import sys

import pytest
from test_confined import Box

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel layers are Linux's")
SUFFIX = importlib.machinery.EXTENSION_SUFFIXES[0]
WAY_OUT = "with the kernel layers (without --layers guard)"


@pytest.fixture
def box(tmp_path):
    return Box(tmp_path)


@pytest.fixture
def module(box):
    """An extension module of this Python, copied by the agent itself to where it may write."""
    folder = next((entry for entry in sys.path if entry.endswith("/lib-dynload")), "")
    name = next(
        (one for one in ("_heapq", "_bisect", "_queue", "_xxtestfuzz") if os.path.exists(f"{folder}/{one}{SUFFIX}")), ""
    )
    if not name:
        pytest.skip("this Python has its modules built in")
    code = f"""
import shutil, sys
sys.modules.pop({name!r}, None)
shutil.copy({f"{folder}/{name}{SUFFIX}"!r}, "out/site-packages")
sys.path.insert(0, "out/site-packages")
try:
    print(__import__({name!r}).__file__)
except OSError as error:
    print(error)
"""
    (box.ws / "out/site-packages").mkdir(parents=True)
    return [sys.executable, "-c", code], f"{box.ws}/out/site-packages/{name}{SUFFIX}"


@pytest.mark.parametrize("layers", ["auto", "guard"])
def test_an_extension_module_of_the_runs_own(box, module, layers):
    """What pip would have put into an environment of the run."""
    argv, path = module
    assert os.path.realpath(box.bare(*argv).stdout.strip()) == path
    os.unlink(path)
    done = box.run("write: ./out/\n", *argv, options=("--layers", layers))
    if layers == "auto":
        assert os.path.realpath(box.ws / done.out.strip()) == path, done.out + done.err
        assert path in [entry["args"]["path"] for entry in done.of("code.load", "meta")]
    else:
        assert WAY_OUT in done.out and done.denied() == {("code.load", path)}


def test_an_extension_module_elsewhere_is_refused(box, module):
    """What the agent makes anywhere else needs a place that it cannot write."""
    argv, path = module
    argv[-1] = argv[-1].replace("out/site-packages", "out")
    assert box.bare(*argv).stdout.strip()
    done = box.run("write: ./out/\n", *argv)
    assert WAY_OUT in done.out and done.denied() == {("code.load", path.replace("/site-packages", ""))}


@pytest.mark.parametrize("layers", ["auto", "guard"])
def test_an_addon_of_the_runs_own(box, layers):
    """What a bundler would have put into node_modules; that it registers nothing is told after it was loaded."""
    for program in ("node", "gcc"):
        if not shutil.which(program):
            pytest.skip(f"there is no {program}")
    (box.folder / "addon.c").write_text(
        '#include <unistd.h>\n__attribute__((constructor)) static void run(void) { write(1, "loaded\\n", 7); }\n'
    )
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", box.folder / "addon.so", box.folder / "addon.c"], check=True)
    (box.ws / "out/node_modules").mkdir(parents=True)
    code = (
        "const fs = require('fs'); fs.copyFileSync(process.argv[1], 'out/node_modules/addon.node');"
        "try { require('./out/node_modules/addon.node') } catch (error) { console.log(error.message) }"
    )
    argv = ["node", "-e", code, f"{box.folder}/addon.so"]
    assert box.bare(*argv).stdout.startswith("loaded\n")
    done = box.run(f"write: ./out/\nread: {box.folder}/addon.so\n", *argv, options=("--layers", layers))
    if layers == "auto":
        assert done.out.startswith("loaded\n"), done.out + done.err
    else:
        path = f"{box.ws}/out/node_modules/addon.node"
        assert WAY_OUT in done.out and "loaded\n" not in done.out and done.denied() == {("code.load", path)}


@pytest.mark.parametrize("layers", ["auto", "guard"])
def test_native_code_that_may_not_be_read_has_its_line(box, module, layers):
    """A module outside of all rules is refused as a file that may not be read, and the line opens it."""
    argv, path = module
    box.bare(*argv)
    outside = f"{box.folder}/outside/{os.path.basename(path)}"
    shutil.move(path, outside)
    name = os.path.basename(path).removesuffix(SUFFIX)
    code = (
        f"import sys\nfrom importlib.machinery import ExtensionFileLoader as Loader, ModuleSpec as Spec\n"
        f"sys.modules.pop({name!r}, None)\nloader = Loader({name!r}, {outside!r})\n"
        f"print(loader.create_module(Spec({name!r}, loader, origin={outside!r})))"
    )
    argv = [sys.executable, "-c", code]
    assert name in box.bare(*argv).stdout
    done = box.run("write: ./out/\n", *argv, options=("--layers", layers))
    assert not done.out
    denied = [(entry["target"], entry["fix"]) for entry in done.trace if entry["kind"] == "deny"]
    assert set(denied) == {(outside, f"read: {outside}")}
    assert name in box.run(f"write: ./out/\n{denied[0][1]}\n", *argv, options=("--layers", layers)).out


def test_what_is_sealed_names_the_way_out(box):
    """The interpreter of the run, below a write rule too: told alike by guard and kernel layers, and for SDK calls."""
    venv = box.ws / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    code = """
import sys, os, subprocess
import agentbox.client as box
site = next(p for p in sys.path if p.endswith("site-packages"))
for write in (lambda: open(site + "/x.py", "w"), lambda: box.write_text(site + "/x.py", "x")):
    try:
        write()
    except OSError as error:
        print(error)
subprocess.run(["sh", "-c", f"echo > {site}/x.py"])
"""
    done = box.run("write: .\nexec: sh\n", str(venv / "bin/python"), "-c", code)
    words = "install packages into an environment that the run makes (python -m venv)"
    assert done.out.count(words) == 2, done.out + done.err
    assert [words in entry["reason"] for entry in done.trace if entry["kind"] == "deny"] == [True] * 3
