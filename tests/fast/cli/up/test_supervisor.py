from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from services.cli.up.supervisor import LONGEST_DELAY_S, Spec, Supervisor, restart_delay_s
from tests.fast.waiting import eventually

SLEEP = (sys.executable, "-S", "-c", "import time; time.sleep(600)")
STUBBORN = (sys.executable, "-S", "-c", "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)")
REFUSING = (sys.executable, "-S", "-c", "raise SystemExit(2)")

Start = Callable[[Sequence[Spec]], Supervisor]


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[Supervisor] = []

    def run(specs: Sequence[Spec]) -> Supervisor:
        supervisor = Supervisor(specs)
        started.append(supervisor)
        supervisor.tick()
        return supervisor

    yield run
    for supervisor in started:
        supervisor.stop(within_s=5)


def alive(pid: int | None) -> bool:
    if pid is None:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def pid_of(supervisor: Supervisor, name: str) -> int:
    pid = supervisor[name].pid
    assert pid is not None
    return pid


def ticking(supervisor: Supervisor, holds: Callable[[], object]) -> None:
    def tick() -> object:
        supervisor.tick()
        return holds()

    eventually(tick)


def test_the_wait_before_a_restart_doubles_from_half_a_second_to_thirty() -> None:
    assert [restart_delay_s(failures) for failures in (1, 2, 3, 7, 8, 5_000)] == [0.5, 1, 2, 30, 30, LONGEST_DELAY_S]


def test_a_killed_process_is_started_again_and_the_others_are_left_alone(start: Start) -> None:
    supervisor = start([Spec("one", SLEEP), Spec("two", SLEEP)])
    one, two = pid_of(supervisor, "one"), pid_of(supervisor, "two")
    os.kill(one, signal.SIGKILL)
    ticking(supervisor, lambda: supervisor["one"].pid not in (one, None))
    assert alive(supervisor["one"].pid)
    assert supervisor["two"].pid == two
    assert alive(two)


def test_a_process_that_died_four_times_in_a_row_is_said_to_be_unable_to_live() -> None:
    clock = [0.0]
    supervisor = Supervisor([Spec("one", REFUSING)], clock=lambda: clock[0])
    said: list[bool] = []
    for death in range(1, 5):
        clock[0] += LONGEST_DELAY_S

        def died(death: int = death) -> bool:
            supervisor.tick()
            return supervisor["one"].starts == death and supervisor["one"].pid is None

        eventually(died)
        said.append(supervisor.unable_to_live() is not None)
    assert said == [False, False, False, True]


def test_a_process_that_keeps_dying_waits_longer_each_time_and_is_forgiven_after_a_minute() -> None:
    clock = [0.0]
    supervisor = Supervisor([Spec("one", SLEEP)], clock=lambda: clock[0])
    delays = []
    for lived in (0.0, 0.0, 0.0, 61.0, 0.0):
        supervisor.tick()
        clock[0] += lived
        os.kill(pid_of(supervisor, "one"), signal.SIGKILL)
        died_at = clock[0]
        ticking(supervisor, lambda: supervisor["one"].pid is None)
        while not supervisor["one"].is_due:
            clock[0] += 0.25
        delays.append(clock[0] - died_at)
    supervisor.stop()
    assert delays == [0.5, 1.0, 2.0, 0.5, 1.0]


def test_a_process_starts_only_once_what_it_needs_is_ready(start: Start, tmp_path: Path) -> None:
    mark = tmp_path / "ready"
    supervisor = start([Spec("broker", SLEEP, ready=mark.exists), Spec("service", SLEEP, needs=("broker",))])
    supervisor.tick()
    assert supervisor["service"].pid is None
    mark.touch()
    supervisor.tick()
    assert alive(supervisor["service"].pid)


def test_when_a_broker_dies_those_that_need_it_start_anew_with_its_new_address(start: Start, tmp_path: Path) -> None:
    told = tmp_path / "told"
    addresses = iter(["first", "second"])
    tell = (
        sys.executable,
        "-S",
        "-c",
        f"import os, time; open({str(told)!r}, 'a').write(os.environ['AT']); time.sleep(600)",
    )
    specs = [Spec("broker", SLEEP), Spec("service", tell, lambda: {"AT": next(addresses)}, needs=("broker",)),
             Spec("other", SLEEP)]  # fmt: skip
    supervisor = start(specs)
    other = supervisor["other"].pid
    eventually(lambda: told.exists() and told.read_text() == "first")
    os.kill(pid_of(supervisor, "broker"), signal.SIGKILL)
    ticking(supervisor, lambda: told.read_text() == "firstsecond")
    assert supervisor["other"].pid == other


def test_a_restart_that_was_asked_for_happens_at_once(start: Start) -> None:
    supervisor = start([Spec("one", SLEEP)])
    before = supervisor["one"].pid
    supervisor.restart("one")
    ticking(supervisor, lambda: supervisor["one"].pid not in (before, None))
    assert supervisor["one"].is_ready


def test_a_process_that_refuses_its_configuration_at_its_first_start_is_told_apart(start: Start) -> None:
    supervisor = start([Spec("fine", SLEEP), Spec("control", REFUSING)])
    ticking(supervisor, lambda: supervisor.refused(2) is not None)
    refused = supervisor.refused(2)
    assert refused is not None
    assert refused.spec.name == "control"
    assert supervisor.refused(3) is None


def test_stop_ends_those_that_need_others_first(start: Start, tmp_path: Path) -> None:
    order = tmp_path / "order"
    script = (
        "import signal, sys, time\n"
        f"signal.signal(15, lambda *_: (open({str(order)!r}, 'a').write(sys.argv[1]), sys.exit()))\n"
        f"open({str(tmp_path)!r} + '/up-' + sys.argv[1], 'w')\n"
        "time.sleep(600)"
    )

    def command(name: str) -> tuple[str, ...]:
        return (sys.executable, "-S", "-c", script, name)

    supervisor = start([Spec("b", command("b")), Spec("s", command("s"), needs=("b",))])
    ticking(supervisor, lambda: (tmp_path / "up-b").exists() and (tmp_path / "up-s").exists())
    supervisor.stop()
    assert order.read_text() == "sb"


def test_stop_kills_what_does_not_end_in_time_and_leaves_nothing(start: Start) -> None:
    supervisor = start([Spec("stubborn", STUBBORN), Spec("fine", SLEEP)])
    pids = [pid_of(supervisor, name) for name in ("stubborn", "fine")]
    time.sleep(0.3)  # until it has begun to ignore the signal
    began = time.monotonic()
    supervisor.stop(within_s=1)
    assert time.monotonic() - began < 10
    assert not any(alive(pid) for pid in pids)


def test_a_request_to_read_the_file_again_does_not_end_a_process_that_is_just_starting(start: Start) -> None:
    supervisor = start([Spec("one", SLEEP)])
    pid = pid_of(supervisor, "one")
    for _ in range(20):
        supervisor["one"].send(signal.SIGHUP)
        time.sleep(0.01)
        supervisor.tick()
    assert supervisor["one"].pid == pid
    assert alive(pid)


def test_what_a_dead_process_had_started_is_ended_too(start: Start, tmp_path: Path) -> None:
    pid_file = tmp_path / "grandchild"
    script = (
        "import subprocess, sys, time\n"
        f"p = subprocess.Popen([sys.executable, '-S', '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(pid_file)!r} + '.new', 'w').write(str(p.pid))\n"
        f"import os; os.rename({str(pid_file)!r} + '.new', {str(pid_file)!r})\n"
        "time.sleep(600)"
    )
    supervisor = start([Spec("one", (sys.executable, "-S", "-c", script))])
    eventually(pid_file.exists)
    grandchild = int(pid_file.read_text())
    os.kill(pid_of(supervisor, "one"), signal.SIGKILL)
    ticking(supervisor, lambda: gone(grandchild))


def test_no_process_outlives_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    pid_file = tmp_path / "child"
    child = (
        "from shared.runtime.process import die_with_parent; import os, time, pathlib\n"
        "die_with_parent()\n"
        f"pathlib.Path({str(pid_file)!r}).write_text(str(os.getpid()))\n"
        "time.sleep(600)"
    )
    script = (
        "import sys, time; from services.cli.up.supervisor import Spec, Supervisor\n"
        f"s = Supervisor([Spec('one', (sys.executable, '-c', {child!r}))])\n"
        "while True: s.tick(); time.sleep(0.05)"
    )
    supervisor = subprocess.Popen([sys.executable, "-c", script])
    eventually(lambda: pid_file.exists() and pid_file.read_text())
    supervisor.kill()
    supervisor.wait()
    eventually(lambda: gone(int(pid_file.read_text())))


def gone(pid: int) -> bool:
    """Ended, if perhaps not yet waited for by whoever inherited it."""
    status = Path(f"/proc/{pid}/status")
    return not alive(pid) or (status.exists() and "State:\tZ" in status.read_text())


SUBREAPER = """
import os, pathlib, sys, time
from services.cli.up.supervisor import Spec, Supervisor
from shared.runtime.process import adopt_orphans
adopt_orphans()  # as a container's first process does by itself
parent = "import subprocess; subprocess.Popen(['sleep', '0.2'], stdout=subprocess.DEVNULL)"
supervisor = Supervisor([Spec("one", (sys.executable, "-S", "-c", parent))], reaps={reaps}, clock=lambda: 0.0)
supervisor.tick()
until = time.monotonic() + 2.0
while time.monotonic() < until:
    supervisor.tick()
    time.sleep(0.05)
children = pathlib.Path(f"/proc/self/task/{{os.getpid()}}/children").read_text().split()
print(supervisor["one"].exit_code, children)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="zombies are looked for in /proc, which only Linux has")
@pytest.mark.parametrize("reaps", [None, False])
def test_who_adopts_orphans_leaves_no_zombies_of_what_its_children_started(reaps: bool | None) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SUBREAPER.format(reaps=reaps)], capture_output=True, text=True, timeout=60
    )
    code, _, left = done.stdout.splitlines()[-1].partition(" ")
    assert code == "0", done.stderr
    assert (left.strip() == "[]") is (reaps is None)
