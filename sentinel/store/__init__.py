"""The window in memory, the database behind it, the journal beside it.

`window.Window` is what rules read; `store.Store` writes to DuckDB and reads
from it; `layered.layered` makes one reader of both; `journal.JournalFile`
makes durable what must be known after a crash.
"""
