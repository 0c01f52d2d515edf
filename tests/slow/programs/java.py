"""Java: javac and java, with a temporary file where the runtime puts those (/tmp)."""

from pathlib import Path

from program import Done, Program

SOURCE = """
public class Hello {
    public static void main(String[] words) throws Exception {
        java.io.File file = java.io.File.createTempFile("hello", null);
        System.out.println("made " + file.length());
        file.delete();
    }
}
"""


def prepare(folder: Path) -> None:
    (folder / "Hello.java").write_text(SOURCE)


def works(folder: Path, done: Done) -> bool:
    return done.returncode == 0 and done.stdout == "made 0\n"


COMPILE = Program(
    name="javac, java",
    argv=("sh", "-c", "javac -d out Hello.java && java -cp out Hello"),
    policy="read: .\nread: /etc/java-*/**\nread: /etc/passwd\nwrite: ./out/\nexec: *\n",
    works=works,
    commands=("javac", "java"),
    debian=("default-jdk-headless",),
    prepare=prepare,
    awaits="a /tmp of the run's own",
    note="with a temporary file",
)
