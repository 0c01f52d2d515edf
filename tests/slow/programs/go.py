"""Go: a build and its result."""

from pathlib import Path

from program import Done, Program


def prepare(folder: Path) -> None:
    (folder / "go.mod").write_text("module example.org/hello\n\ngo 1.19\n")
    (folder / "main.go").write_text('package main\n\nimport "fmt"\n\nfunc main() { fmt.Println("hello") }\n')


def works(folder: Path, done: Done) -> bool:
    return done.returncode == 0 and done.stdout == "hello\n"


BUILD = Program(
    name="go build",
    argv=("sh", "-c", "go build -o out/hello . && out/hello"),
    policy="read: .\nwrite: ./out/\nexec: *\nenv: GOFLAGS\nenv: GOCACHE\nenv: GOPATH\n",
    works=works,
    commands=("go",),
    prepare=prepare,
    environ={"GOFLAGS": "-mod=mod -buildvcs=false", "GOCACHE": "{folder}/out/cache", "GOPATH": "{folder}/out/path"},
    note="and what it made",
)
