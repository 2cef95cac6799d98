"""The key of deployments under test, as they are told it, and one that a stranger has."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from pathlib import Path

from shared.kafka.signing import KEY_FILE, Signing

KEY = "tests-sign-with-this-and-nobody-else-does"
SIGNING = Signing(KEY.encode())
STRANGERS = Signing(b"of-somebody-who-has-another-key-than-we-do")

_folder = Path(tempfile.mkdtemp(prefix="viaduck-key-"))
atexit.register(shutil.rmtree, _folder, ignore_errors=True)
(_folder / "key").write_text(KEY)

ENVIRON = {KEY_FILE: str(_folder / "key")}
"""For services whose file names no key."""

VARIABLE = "VIADUCK_TEST_SIGNING_KEY"
SECTION = {"signing_key_env": VARIABLE}
"""For a file that names one, in a variable."""
