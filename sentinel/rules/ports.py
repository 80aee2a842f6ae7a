"""What the rules need from others."""

from __future__ import annotations

from collections.abc import Callable, Collection

from sentinel.model.alerts import RuleSpec
from sentinel.model.series import Batch

Append = Callable[[Batch], None]
"""Takes what a rule has written at once, so that the next rule of the group can read it."""

Sees = Callable[[RuleSpec], Collection[str] | None]
"""The names of the jobs whose series a rule may read; None: everything."""
