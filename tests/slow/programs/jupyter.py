"""Jupyter: nbconvert executes a notebook, which starts a kernel and talks with it over loopback."""

import json
from pathlib import Path

from program import Done, Program

CELL = {"cell_type": "code", "execution_count": None, "id": "a", "metadata": {}, "outputs": [], "source": "print(6*7)"}
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


def prepare(folder: Path) -> None:
    book = {"cells": [CELL], "metadata": {"kernelspec": KERNEL}, "nbformat": 4, "nbformat_minor": 5}
    (folder / "book.ipynb").write_text(json.dumps(book))


def works(folder: Path, done: Done) -> bool:
    made = folder / "out" / "book.md"
    return done.returncode == 0 and made.is_file() and "42" in made.read_text()


CONVERT = Program(
    name="jupyter nbconvert",
    argv=("python", "-m", "nbconvert", "--execute", "--to", "markdown", "--output-dir", "out", "book.ipynb"),
    policy="read: .\nwrite: ./out/\nexec: *\nenv: JUPYTER_*\nenv: IPYTHONDIR\n",
    works=works,
    pip=("nbconvert", "ipykernel"),
    prepare=prepare,
    environ=dict.fromkeys(("JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR", "IPYTHONDIR"), "{folder}/out/jupyter"),
    note="executes a notebook",
)
