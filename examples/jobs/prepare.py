"""Make the data that train.py trains on: points of a noisy line, as JSON.

python prepare.py --out data
"""

import argparse
import json
import random
from pathlib import Path

POINTS = 256


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="the directory to write to")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "points.json"
    path.write_text(json.dumps(noisy_line()))
    print(f"wrote {POINTS} points to {path}")


def noisy_line() -> list[tuple[float, float]]:
    """Points around y = 3x - 1."""
    source = random.Random(1)
    xs = [source.uniform(-1, 1) for _ in range(POINTS)]
    return [(x, 3 * x - 1 + source.gauss(0, 0.05)) for x in xs]


if __name__ == "__main__":
    main()
