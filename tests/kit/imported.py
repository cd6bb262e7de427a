"""Which files of the repository a module imports, directly or not, as its source says.

Rather too many than too few: every import counts that stands in a file, in whichever function, and with a module the packages
around it. What only types need is left out. A file that imports by a name made at run time may import anything: with it go all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

_FOR_TYPES = re.compile(r"^if TYPE_CHECKING:\n(?:[ \t]+[^\n]*\n|\n)+", re.MULTILINE)
_ANYTHING = re.compile(r"\b(?:import_module|__import__|entry_points|run_module|run_path)\(")
_COMMENT = re.compile(r"#[^\n]*")
"""Within strings, too: what follows on such a line is no import either."""


class Imports:
    """The Python files below ``root`` of some top packages. They are read once."""

    def __init__(self, root: Path, packages: Sequence[str]) -> None:
        self._root, self._packages = root, packages
        names = rf"(?:{'|'.join(packages)})(?![\w])[\w.]*"
        self._import = re.compile(
            rf"^[ \t]*(?:from[ \t]+({names})[ \t]+import[ \t]+(\([^)]*\)|[^\n]*)|import[ \t]+([^\n]*))",
            re.MULTILINE,
        )
        self._direct: dict[Path, set[Path]] = {}
        self._named: dict[str, tuple[Path, ...]] = {}

    def closure(self, module: Path) -> set[Path]:
        """The module's own file and every one that comes with it."""
        found: set[Path] = set()
        left = [module]
        while left:
            file = left.pop()
            if file not in found:
                found.add(file)
                left += self._imported(file)
        return found

    def _imported(self, file: Path) -> set[Path]:
        if file not in self._direct:
            text = _FOR_TYPES.sub("", _COMMENT.sub("", file.read_text()).replace("\\\n", " "))
            files = {other for name in set(self._names(text)) for other in self._files(name)}
            if _ANYTHING.search(text):
                files.update(*(self._root.joinpath(package).rglob("*.py") for package in self._packages))
            self._direct[file] = files
        return self._direct[file]

    def _names(self, text: str) -> Iterator[str]:
        for module, members, modules in self._import.findall(text):
            if module:
                yield module
                yield from (f"{module}.{name}" for name in re.findall(r"\w+", members))
            yield from (words.split()[0] for words in modules.split(",") if words.strip())

    def _files(self, name: str) -> tuple[Path, ...]:
        """Of a module, or of the package around it, and of the packages around that."""
        if (known := self._named.get(name)) is not None:
            return known
        around, _, last = name.rpartition(".")
        if around:
            files = self._files(around)
        elif last not in self._packages:
            return ()
        else:
            files = ()
        if files or not around:
            place = self._root.joinpath(*name.split("."))
            files += tuple(
                file for file in (place.with_suffix(".py"), place / "__init__.py") if file.is_file()
            )
        self._named[name] = files
        return files
