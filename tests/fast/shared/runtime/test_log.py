from __future__ import annotations

import json
import subprocess
import sys

CONFIGURED = "from shared.runtime.log import configure; import structlog, logging; configure('reader', json={json}); "


def logged(code: str, json: bool = True) -> subprocess.CompletedProcess[str]:
    """What a process of its own writes: logging is set up once per process."""
    command = [sys.executable, "-c", CONFIGURED.format(json=json) + code]
    return subprocess.run(command, capture_output=True, text=True, check=True)


def test_a_line_names_its_service_and_goes_to_standard_error() -> None:
    done = logged("structlog.get_logger('x').info('range applied', after=3, through=5)")
    line = json.loads(done.stderr)
    assert done.stdout == ""
    assert (line["service"], line["event"], line["after"], line["level"]) == ("reader", "range applied", 3, "info")
    assert line["timestamp"].endswith("Z")


def test_lines_of_libraries_look_the_same() -> None:
    line = json.loads(logged("logging.getLogger('some.library').warning('slow %s', 'answer')").stderr)
    assert (line["service"], line["event"], line["level"]) == ("reader", "slow answer", "warning")


def test_no_secret_gets_through_in_an_event_a_value_or_a_traceback() -> None:
    code = """
log = structlog.get_logger('x')
log.error("can't reach postgresql://u:hunter2@h/d", catalog="postgres:dbname=d password=hunter2")
try:
    raise ValueError("dbname=d password='hunter2'")
except ValueError:
    log.exception("unexpected")
"""
    for as_json in (True, False):
        said = logged(code, json=as_json).stderr
        assert "hunter2" not in said
        assert "ValueError" in said


def test_a_traceback_shows_no_local_variables() -> None:
    code = """
def connect(word):
    raise OSError("refused")
try:
    connect("hunter" + "2")
except OSError:
    structlog.get_logger('x').exception("unexpected")
"""
    assert "hunter2" not in logged(code, json=False).stderr


def test_levels_below_information_are_left_out() -> None:
    assert logged("structlog.get_logger('x').debug('detail')").stderr == ""
