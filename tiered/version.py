"""The program's version and the archive format versions it reads and writes."""

__version__ = "0.1.0"

FORMAT_VERSION = 1
"""Version of commits and objects that this program writes; a reader refuses a higher one."""

MIN_READER = FORMAT_VERSION
"""The oldest format version whose programs may read what this one writes."""

MIN_WRITER = FORMAT_VERSION
"""The oldest format version whose programs may go on writing after this one."""
