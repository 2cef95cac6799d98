from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from shared.kafka.broker import Broker
from shared.kafka.settings import KafkaSettings
from tests.fast.waiting import eventually


def test_the_broker_process_tells_its_address_answers_and_ends_on_sigterm(tmp_path: Path) -> None:
    file = tmp_path / "address"
    process = subprocess.Popen([sys.executable, "-m", "shared.kafka.embedded", str(file)], stderr=subprocess.DEVNULL)
    eventually(file.exists)
    broker = Broker(KafkaSettings(file.read_text(), embedded=True))
    assert broker.problem() is None
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == 0
    eventually(lambda: broker.problem(timeout_s=0.5) is not None)


def test_a_broker_that_does_not_answer_is_named(tmp_path: Path) -> None:
    problem = Broker(KafkaSettings("127.0.0.1:1")).problem(timeout_s=0.5)
    assert problem is not None
    assert "127.0.0.1:1 can't be used" in problem
