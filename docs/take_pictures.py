"""Takes the pictures in docs/images: real screens and pages of real runs, painted by a browser.

    python docs/take_pictures.py

Needs tmux and chromium.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

IMAGES = Path(__file__).parent / "images"
COLUMNS, ROWS = 110, 22
TRAINING = """
import os, time
import torch

rank, attempt = int(os.environ["RANK"]), int(os.environ["DLROVER_ATTEMPT"])
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(400):
    if rank == 0 and step % 10 == 0:
        print(f"epoch {step // 50}  step {step:4d}  loss {1 / (1 + step / 60):.4f}", flush=True)
    model(torch.ones(8)).sum().backward()
    optimizer.step()
    time.sleep(0.09 if rank == 5 else 0.05)
    if attempt == 0 and rank == 3 and step == 60:
        raise ValueError("batch 17 has no labels")
"""
FAILING = """
import os, time
import torch

rank, attempt = int(os.environ["RANK"]), int(os.environ["DLROVER_ATTEMPT"])
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(600):
    model(torch.ones(8)).sum().backward()
    optimizer.step()
    time.sleep(0.04 if step < 150 else 0.06)
    if (attempt, rank, step) in [(0, 1, 120), (1, 2, 240), (2, 0, 330)]:
        raise RuntimeError("loss is nan")
"""
BROKEN = """
import os
import time

def loss_of(batch):
    return sum(batch["pixels"]) / batch["labels"]

for step in range(100):
    if os.environ["RANK"] == "3" and step == 17:
        loss_of({"pixels": [1, 2, 3], "label": 4})
    time.sleep(0.02)
time.sleep(600)
"""
PAGE = """<!doctype html><meta charset="utf-8"><style>
body { margin: 0; background: #0c0c0c; color: #dcdcdc; }
pre { font: 15px/1.3 monospace; padding: 14px; margin: 0; }
</style><pre>"""


class Screen:
    """A terminal of its own."""

    def __init__(self, name: str, directory: Path) -> None:
        self._tmux = ["tmux", "-L", f"pictures-{os.getpid()}-{name}"]
        shell = f"env -u CI -u NO_COLOR XDG_STATE_HOME={directory}/state PS1='$ ' bash --norc"
        size = ["-x", str(COLUMNS), "-y", str(ROWS)]
        self._run("-f", "/dev/null", "new-session", "-d", *size, "-c", str(directory), shell)
        path = f"{Path(sys.executable).parent}:$PATH"
        self.type(f"PATH={path} LANG=C.UTF-8; clear")

    def type(self, line: str) -> None:
        self._run("send-keys", line, "Enter")

    def text(self, *options: str) -> str:
        return self._run("capture-pane", "-p", *options)

    def wait_for(self, *texts: str) -> None:
        deadline = time.monotonic() + 120
        while not all(text in self.text() for text in texts):
            if time.monotonic() > deadline:
                raise SystemExit(f"{texts} did not appear:\n{self.text()}")
            time.sleep(0.1)

    def wait_for_prompt(self) -> None:
        """Until there is nothing else: what is typed before that is shown twice."""
        deadline = time.monotonic() + 60
        while self.text().strip() != "$" and time.monotonic() < deadline:
            time.sleep(0.1)

    def close(self) -> None:
        self._run("kill-server")

    def _run(self, *arguments: str) -> str:
        command = [*self._tmux, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def main() -> None:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        directory = Path(name)
        (directory / "train.py").write_text(TRAINING)
        training, watching = Screen("train", directory), Screen("top", directory)
        try:
            training.type("dlrover-run --nproc-per-node=8 --max-restarts=3 train.py")
            training.wait_for("attempt 1", "steps/s", "step  120")
            paint(training.text("-e"), IMAGES / "status-line.png", directory)
            watching.type("dlrover-job top")
            watching.wait_for("q leaves", "behind")
            paint(watching.text("-e"), IMAGES / "top.png", directory)
            take_story(directory)
            take_debugger(directory)
        finally:
            training.close()
            watching.close()
        take_examination(directory)


def paint(screen: str, path: Path, directory: Path) -> None:
    """The screen as a picture."""
    with open(os.devnull, "w") as nowhere:
        console = Console(record=True, width=COLUMNS, file=nowhere, force_terminal=True)
        console.print(Text.from_ansi(screen), no_wrap=True, overflow="crop")
        page = console.export_html(theme=MONOKAI, inline_styles=True, code_format="{code}")
    html = directory / "screen.html"
    html.write_text(f"{PAGE}{page}</pre>", encoding="utf-8")
    photograph(html, path, COLUMNS * 9 + 40, int(ROWS * 19.5) + 30)


def take_story(directory: Path) -> None:
    """The page about a run that fails three times."""
    (directory / "failing").mkdir()
    (directory / "failing" / "train.py").write_text(FAILING)
    programs, page = Path(sys.executable).parent, directory / "why.html"
    environ = {**os.environ, "XDG_STATE_HOME": f"{directory}/failing/state"}
    training = [programs / "dlrover-run", "--nproc-per-node=4", "--max-restarts=2", "train.py"]
    subprocess.run(training, env=environ, cwd=directory / "failing", check=False)
    subprocess.run([programs / "dlrover-job", "why", "--html", page], env=environ, check=True)
    photograph(page, IMAGES / "why.png", 900, 890)


def take_examination(directory: Path) -> None:
    """What the doctor says before a job with a misspelt endpoint and an interface of elsewhere."""
    screen = Screen("doctor", directory)
    try:
        screen.type("export DLROVER_NNODES=2 NCCL_SOCKET_IFNAME=ib0; clear")
        screen.wait_for_prompt()
        checks = "interfaces endpoint shm memory cpu limits clock torch"
        screen.type(f"dlrover-job doctor {checks} --rdzv-endpoint nodee0:29400")
        screen.wait_for(" fine")
        paint(screen.text("-e"), IMAGES / "doctor.png", directory)
    finally:
        screen.close()


def take_debugger(directory: Path) -> None:
    """A post-mortem beside seven ranks that wait."""
    (directory / "broken.py").write_text(BROKEN)
    screen = Screen("pdb", directory)
    try:
        screen.type("dlrover-run --nproc-per-node=8 --pdb broken.py")
        screen.wait_for("(Pdb)")
        for line in ("p batch.keys()", "u", "p step"):
            screen.type(line)
            time.sleep(0.5)
        paint(screen.text("-e"), IMAGES / "post-mortem.png", directory)
        screen.type("q")
        screen.wait_for("logs, events and result")
    finally:
        screen.close()


def photograph(html: Path, path: Path, width: int, height: int) -> None:
    """What a browser shows of a page."""
    chromium = shutil.which("chromium") or "chromium"
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    size = f"--window-size={width},{height}"
    command = [chromium, *options, size, f"--screenshot={path}", html.as_uri()]
    subprocess.run(command, check=True, capture_output=True, timeout=120)


if __name__ == "__main__":
    main()
