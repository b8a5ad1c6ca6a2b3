"""What a site gives to a packed study before its owner has decided anything about it."""

from __future__ import annotations

MAX_PACK_BYTES = 16 << 20
"""Of a pack, and so of all its files together."""
SEAL_BYTES = 1 << 16
"""More than a pack grows by when it is sealed."""
MAX_TOML_BYTES = 4 << 20
"""Of one TOML file: about 1,500 parties with their keys."""
MAX_TOML_VALUES = 100_000
MAX_TOML_DEPTH = 32
"""Of brackets inside each other, and of the parts of a dotted key."""
MAX_ROWS = 500_000
MAX_COLUMNS = 10_000
MAX_TABLE_BYTES = 256 << 20
"""Of a Parquet file of public records, by its footer: rows, columns, and bytes before compression."""
MEMORY_BYTES = 1 << 30
CPU_SECONDS = 15
WALL_SECONDS = 120.0
"""Of the process that reads a pack with public records for the first time, its imports included."""
MAX_UNDECIDED = 8
MAX_UNDECIDED_BYTES = 64 << 20
"""Of one submitter's studies that nobody has decided about, or that the policy alone has approved: how many wait for a
person, and the bytes of both."""
LEAST_FREE_BYTES = 100 << 20
LEAST_FREE_SHARE = 0.1
"""Of the disk, the smaller of the two, below which no study is taken in: a run that goes on needs the room for its
commits."""
