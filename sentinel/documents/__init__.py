"""YAML with positions: every value knows its line and column, and every mistake is said, all of them together.

```python
problems: list[Problem] = []
root = documents.read(path, problems)  # or load(text, file, problems); None: no YAML at all
if root is not None:
    for fields in (item.fields("name", "interval", "rules", required=("name",)) for item in root.sequence()):
        name = fields.text("name", "")
        interval = fields.duration("interval", 60.0, above=0.0)
if problems:
    raise Problems(problems)
```

An accessor that finds something else than it expects reports a problem and
answers with the default, so that reading goes on to the next mistake.
"""

from sentinel.documents.fields import Fields
from sentinel.documents.loading import load, read
from sentinel.documents.node import Kind, Node

__all__ = ["Fields", "Kind", "Node", "load", "read"]
