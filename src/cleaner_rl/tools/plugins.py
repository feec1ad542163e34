"""Plug-ins: one way to find, name and load what other installed packages add to ours.

A kind of plug-in (`Plugins`) is a group of entry points. Each kind is declared in the package that uses it;
docs/extend.md has a template for every one, `cleaner_rl.contracts` its tests. A name of ours is taken: no other package
can replace what we ship.

`importlib.metadata` is loaded when it is first used: it takes longer to import than all of this package's own modules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Generic, TypeVar, cast

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

T = TypeVar("T")
PACKAGE = "cleaner-rl"


class PluginError(ValueError):
    """No plug-in has this name, or it can't be used. The message says which package it is from and what is wrong."""


@dataclass(frozen=True, slots=True)
class Installed:
    """A plug-in by where it comes from; it isn't loaded yet."""

    name: str
    value: str
    """`module:attribute`."""
    package: str

    @property
    def is_ours(self) -> bool:
        """Whether it comes with this package."""
        return self.package == PACKAGE


@dataclass(frozen=True, slots=True)
class Plugins(Generic[T]):
    """Finds and loads the plug-ins of one kind."""

    group: str
    what: str
    """Name of this kind of plug-in in messages."""
    ours: Mapping[str, str]
    """Plug-ins that come with the package, as `module:attribute`, in the order in which they are tried."""
    needs: tuple[str, ...] = ()
    """Attributes that a plug-in must have."""

    def installed(self) -> list[Installed]:
        """Return all plug-ins: ours, then those of other packages, by name."""
        ours = [Installed(name, value, PACKAGE) for name, value in self.ours.items()]
        return ours + [_installed(entry) for entry in self._entries()]

    def names(self) -> list[str]:
        """Return all names, sorted."""
        return sorted({*self.ours, *self.others()})

    def others(self) -> list[str]:
        """Return the names that other packages add, sorted."""
        return sorted({entry.name for entry in self._entries()} - set(self.ours))

    def load(self, name: str, **options: object) -> T:
        """Return what the class or function of this name makes of these options."""
        found = self._find(name)
        whose = f"the {self.what} '{name}' of {found.package} ({found.value})"
        advice = "" if found.is_ours else f"; repair {found.package}, or uninstall it"
        module, _, attribute = found.value.partition(":")
        if not attribute:
            raise PluginError(f"{whose} can't be loaded: a module is named, and nothing in it{advice}")
        try:
            loaded: object = import_module(module)
            for part in attribute.split("."):
                loaded = getattr(loaded, part)
        except Exception as error:  # whatever a module of somebody's raises when it is imported
            raise PluginError(f"{whose} can't be imported: {_told(error)}{advice}") from error
        if not callable(loaded):
            raise PluginError(f"{whose} is {_kind(loaded)}, not a class or a function{advice}")
        try:
            loaded = loaded(**options)
        except PluginError:
            raise
        except Exception as error:
            with_what = f"with {', '.join(options)}" if options else "without arguments"
            raise PluginError(f"{whose} can't be made {with_what}: {_told(error)}") from error
        lacking = [need for need in self.needs if not hasattr(loaded, need)]
        if lacking:
            raise PluginError(f"{whose} is {_kind(loaded)} without {', '.join(map(repr, lacking))}{advice}")
        return cast("T", loaded)

    def _find(self, name: str) -> Installed:
        if name in self.ours:
            return Installed(name, self.ours[name], PACKAGE)
        found = [_installed(entry) for entry in self._entries() if entry.name == name]
        if not found:
            raise PluginError(f"no {self.what} is named {name!r}; installed: {', '.join(self.names())}")
        if len({each.value for each in found}) > 1:
            packages = " and ".join(each.package for each in found)
            raise PluginError(f"two packages bring a {self.what} named '{name}': {packages}; uninstall one of them")
        return found[0]

    def _entries(self) -> list[EntryPoint]:
        from importlib.metadata import entry_points

        found = (entry for entry in entry_points(group=self.group) if _package(entry) != PACKAGE)
        return sorted(found, key=lambda entry: (entry.name, entry.value))


def _installed(entry: EntryPoint) -> Installed:
    return Installed(entry.name, entry.value, _package(entry))


def _package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else "an unknown package"


def _kind(value: object) -> str:
    return f"a {type(value).__name__}"


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
