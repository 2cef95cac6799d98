"""``python -m tests.model``: models that are too large for every day, each for as long as there is time.

Exit code 0 if nothing was found, 1 if a behaviour breaks a promise (it is shown), 2 if TLC could not do its work.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.model.tlc import MODELS, configured, module_of, search

LARGE = ("drops", "registry", "moves", "large", "direct-large")


def main() -> int:
    asked = argparse.ArgumentParser(prog="python -m tests.model")
    asked.add_argument("--model", nargs="+", default=LARGE, choices=sorted(file.stem for file in MODELS.glob("*.cfg")))
    asked.add_argument("--minutes", type=float, default=60.0, help="for each model")
    given = asked.parse_args()
    return max(_searched(model, given.minutes) for model in given.model)


def _searched(model: str, minutes: float) -> int:
    with tempfile.TemporaryDirectory(prefix="viaduck-model-") as scratch:
        verdict = search(module_of(model), configured(model), Path(scratch), for_s=minutes * 60, show=_show)
    if verdict.broken is not None:
        return 1
    if not verdict.distinct:
        return 2
    done = "all of them" if verdict.holds else f"{verdict.left:,} still to be looked at"
    _show(f"{model}: nothing found in {verdict.distinct:,} distinct states, depth {verdict.depth}; {done}\n")
    return 0


def _show(line: str) -> None:
    sys.stdout.write(line)
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())
