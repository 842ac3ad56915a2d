"""The settings of a project, its models and its checks: YAML or Python values that know their file and line."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from anabranch.hints import suggest
from anabranch.pipelines.declarations import SourceLocation

__all__ = ["Setting", "read_settings"]

# Projects may come from others. YAML can repeat a part by its name, and the parts in it again.
_LONGEST = 262_144
_MOST_PARTS = 10_000
_DEEPEST = 12
_PLAIN_TAGS = ("tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")

Scalar = Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A value and the line where it is written."""

    value: "dict[str, Setting] | tuple[Setting, ...] | Scalar"
    location: SourceLocation

    @classmethod
    def of(cls, value: Any, location: SourceLocation, *, depth: int = 0) -> "Setting":
        """Wrap Python values that were all given at one location."""
        # A list or dict of Python may contain itself.
        if depth > _DEEPEST:
            location.fail("the settings are nested too deeply", hint="write them flat")
        if isinstance(value, Mapping):
            inner = {str(name): cls.of(item, location, depth=depth + 1) for name, item in value.items()}
            return cls(value=inner, location=location)
        if isinstance(value, Sequence) and not isinstance(value, str | bytes):
            return cls(value=tuple(cls.of(item, location, depth=depth + 1) for item in value), location=location)
        return cls(value=value, location=location)

    def fail(self, problem: str, *, hint: str) -> NoReturn:
        self.location.fail(problem, hint=hint)

    def entries(self, what: str) -> "dict[str, Setting]":
        if not isinstance(self.value, dict):
            self.fail(f"{what} is {self.shown()}", hint="give a mapping, with lines such as 'name: value'")
        return self.value

    def known(self, what: str, names: Sequence[str], *, hints: Mapping[str, str] | None = None) -> "dict[str, Setting]":
        """Return the entries of a mapping; refuse other names than these, with a hint for those that others use."""
        found = self.entries(what)
        for name, setting in found.items():
            if name not in names:
                usual = suggest(name, names, f"use {', '.join(names)}")
                setting.fail(f"{what} has no setting {name!r}", hint=(hints or {}).get(name, usual))
        return found

    def items(self, what: str) -> "tuple[Setting, ...]":
        if not isinstance(self.value, tuple):
            self.fail(f"{what} is {self.shown()}", hint="give a list")
        return self.value

    def text(self, what: str) -> str:
        if not isinstance(self.value, str) or not self.value.strip():
            self.fail(f"{what} is {self.shown()}", hint="give a text")
        return self.value.strip()

    def names(self, what: str) -> tuple[str, ...]:
        """Return a list of names; one name alone is a list of one."""
        settings = self.value if isinstance(self.value, tuple) else (self,)
        found = tuple(setting.text(what) for setting in settings)
        if not found or len(set(found)) < len(found):
            self.fail(f"{what} is {self.shown()}", hint="give one or more names, each once")
        return found

    def plain(self) -> Any:
        """Return the value without its locations."""
        if isinstance(self.value, dict):
            return {name: setting.plain() for name, setting in self.value.items()}
        return [setting.plain() for setting in self.value] if isinstance(self.value, tuple) else self.value

    def shown(self) -> str:
        return "empty" if self.value in (None, ()) else repr(self.plain())


def read_settings(text: str, *, file: str, first_line: int = 1) -> Setting:
    """Read YAML without running anything in it; the text begins at a line of a file."""
    import yaml  # only projects need it

    start = SourceLocation(file=file, line=first_line)
    if len(text) > _LONGEST:
        start.fail(f"the YAML has {len(text):,} characters", hint=f"use at most {_LONGEST:,}")
    try:
        loader = yaml.SafeLoader(text)
        root = loader.get_single_node()
        return Setting(value={}, location=start) if root is None else _Reader(yaml, loader, start).read(root, depth=0)
    except yaml.YAMLError as err:
        mark = getattr(err, "problem_mark", None)
        location = start if mark is None else SourceLocation(file=file, line=first_line + mark.line)
        problem = getattr(err, "problem", None) or " ".join(str(err).split())
        location.fail(f"the YAML does not parse: {problem}", hint="correct it")
    # PyYAML reads nested parts by recursion, before the depth can be checked here.
    except RecursionError:
        start.fail("the settings are nested too deeply", hint="write them flat")


class _Reader:
    def __init__(self, yaml: Any, loader: Any, start: SourceLocation) -> None:
        self._yaml = yaml
        self._loader = loader
        self._start = start
        self._parts = 0

    def read(self, node: Any, *, depth: int) -> Setting:
        location = self._location(node)
        self._parts += 1
        # YAML aliases can repeat parts exponentially, so a small file may have a very large number of parts.
        if self._parts > _MOST_PARTS or depth > _DEEPEST:
            location.fail("the YAML has too many parts", hint=f"use at most {_MOST_PARTS:,}, at most {_DEEPEST} deep")
        if isinstance(node, self._yaml.ScalarNode):
            return Setting(value=self._scalar(node, location), location=location)
        # A tag asks for another type, such as a set or an object of Python.
        if node.tag not in _PLAIN_TAGS:
            location.fail(f"the YAML has the tag {node.tag!r}", hint="use plain mappings, lists and values")
        if isinstance(node, self._yaml.SequenceNode):
            return Setting(value=tuple(self.read(item, depth=depth + 1) for item in node.value), location=location)
        return Setting(value=self._mapping(node, depth=depth), location=location)

    def _mapping(self, node: Any, *, depth: int) -> dict[str, Setting]:
        found: dict[str, Setting] = {}
        for key, item in node.value:
            location = self._location(key)
            if not isinstance(key, self._yaml.ScalarNode) or key.value == "<<":
                location.fail("a name is not a text", hint="write 'name: value'")
            # PyYAML keeps the last of two equal names without an error.
            if key.value in found:
                location.fail(f"{key.value!r} is given twice", hint="keep one of them")
            # The line of the name: a long value begins below it.
            found[key.value] = Setting(value=self.read(item, depth=depth + 1).value, location=location)
        return found

    def _scalar(self, node: Any, location: SourceLocation) -> Scalar:
        try:
            return self._loader.construct_object(node)
        # YAML reads a text such as 2026-02-30 as a date, and that date does not exist.
        except (ValueError, OverflowError) as err:
            location.fail(f"{node.value!r} is not a value: {err}", hint="put it in quotes if it is a text")

    def _location(self, node: Any) -> SourceLocation:
        return SourceLocation(file=self._start.file, line=self._start.line + node.start_mark.line)
