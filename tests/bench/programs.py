"""The Python programs that are measured: each prints what it took, in seconds, behind `figure`, but for the last."""

COMPUTE = """
import time
def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)
start = time.perf_counter()
for _ in range(3): fib(24); sum(x * x for x in range(200_000)); {i: str(i) for i in range(50_000)}
print("figure", time.perf_counter() - start)
"""
READ = """
import time
def once():
    with open("data/small.txt", "rb") as file: file.read()
for _ in range(200): once()
start = time.perf_counter()
for _ in range(2000): once()
print("figure", (time.perf_counter() - start) / 2000)
"""
CHILDREN = """
import subprocess, sys, time
start = time.perf_counter()
for _ in range(10): subprocess.run([sys.executable, "-c", "pass"], check=True)
print("figure", (time.perf_counter() - start) / 10)
"""
STATUS = """
import subprocess, time
best = 1e9
for _ in range(5):
    start = time.perf_counter()
    subprocess.run(["git", "-C", "repository", "status", "--porcelain"], check=True)
    best = min(best, time.perf_counter() - start)
print("figure", best)
"""
MEMORY = """
for _ in range(COUNT):
    with open("data/small.txt", "rb") as file: file.read()
print("ready", flush=True)
input()
"""
