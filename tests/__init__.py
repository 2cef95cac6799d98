"""The tests play in a zone of their own, and so does each process that they start: 12 hours and 45 minutes, or 13 and
45, from what the services reckon in. Set before anything is imported: DuckDB looks once, as it is loaded."""

import os
import time

os.environ["TZ"] = "Pacific/Chatham"
time.tzset()
