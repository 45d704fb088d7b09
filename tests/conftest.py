"""What holds for all tests.

Property tests do not fail for being slow: the machine may have other things to do. And Ctrl-C means
something in processes under test, also where all of this runs in the background of a shell, which
has it ignored there.
"""

from __future__ import annotations

import signal

from hypothesis import HealthCheck, settings

signal.signal(signal.SIGINT, signal.default_int_handler)
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")
