"""What a flag can name: models and optimizers, each with the settings that only it has.

Standard library only. An entry that is registered before `cifar10.config` is imported brings its
settings with it; one that comes later can have none of its own.
"""

import abc
from collections.abc import KeysView
from typing import Any, Generic, TypeVar

T = TypeVar("T", bound="Entry")


class Entry(abc.ABC):
    """Something that a flag can name.

    Attributes:
      name: the value of the flag.
      settings: a dataclass of the settings that only this entry has, or only its kind, made by
        `cifar10.config.settings.setting`; `TrainConfig` has them, too. `object`: it has none.
    """

    name: str
    settings: type = object


class Registry(Generic[T]):
    """All entries that a flag can name.

    Args:
      what: what an entry is, the name of the setting: `model`.

    Attributes:
      names: the names of the entries, a view: it includes those that are registered later.
    """

    def __init__(self, what: str) -> None:
        self.what = what
        self._entries: dict[str, T] = {}
        self.names: KeysView[str] = self._entries.keys()

    def register(self, entry: T) -> None:
        """Adds an entry, so that the flag accepts its name.

        Raises:
          ValueError: there already is an entry of that name.
        """
        if entry.name in self._entries:
            raise ValueError(f"{self.what} {entry.name} exists already; choose another name")
        self._entries[entry.name] = entry

    def unregister(self, name: str) -> None:
        """Removes an entry."""
        del self._entries[name]

    def find(self, name: str) -> T:
        """Returns the entry of this name.

        Raises:
          LookupError: there is no such entry.
        """
        if name not in self._entries:
            raise LookupError(f"{self.what} must be one of {', '.join(self.names)}, got {name!r}")
        return self._entries[name]

    def names_where(self, attribute: str) -> tuple[str, ...]:
        """Returns the names of the entries of which an attribute is true."""
        return tuple(name for name, entry in self._entries.items() if getattr(entry, attribute))

    def owners(self, setting: str) -> tuple[str, ...]:
        """Returns the names of the entries that have a setting as their own."""
        entries = self._entries.items()
        return tuple(name for name, entry in entries if hasattr(entry.settings, setting))


def own_settings(*registries: Registry[Any]) -> list[type]:
    """Returns the dataclasses of the settings that single entries of the registries have."""
    entries = [registry.find(name) for registry in registries for name in registry.names]
    found = dict.fromkeys(entry.settings for entry in entries)
    # A class comes before its bases, or Python could not order them.
    return sorted(found, key=lambda settings: -len(settings.__mro__))
