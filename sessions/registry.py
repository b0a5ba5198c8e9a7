"""Plug-ins by scanning a folder: one instance a module, no list to extend."""

from __future__ import annotations

import inspect
import pkgutil
from functools import cached_property
from importlib import import_module
from typing import Any, Generic, TypeVar, cast

T = TypeVar("T")


class UnknownName(LookupError):
    """Nothing of that name is known; the message lists what is."""


class Registry(Generic[T]):
    """The plug-ins in a package: each module but `base` defines one class with a `name`.

    The scan happens at the first use. Two plug-ins of one name, or a module with none or several,
    stop it with a `TypeError` that names the file.
    """

    def __init__(self, package: str, what: str) -> None:
        self.package = package
        self.what = what

    @cached_property
    def by_name(self) -> dict[str, T]:
        found: dict[str, T] = {}
        for module in self._modules():
            plugin = self._instance(module)
            name: str = plugin.name  # type: ignore[attr-defined]
            if name in found:
                raise TypeError(
                    f"{module}: a second {self.what} called {name!r}, beside {type(found[name]).__module__}"
                )
            found[name] = plugin
        return found

    def get(self, name: str) -> T:
        """Return the plug-in of that name. Raises `UnknownName`, listing those there are."""
        if name not in self.by_name:
            raise UnknownName(f"there is no {self.what} called {name!r}; there is {', '.join(sorted(self.by_name))}")
        return self.by_name[name]

    def _modules(self) -> list[str]:
        package = import_module(self.package)
        names = sorted(module.name for module in pkgutil.iter_modules(package.__path__) if module.name != "base")
        return [f"{self.package}.{name}" for name in names]

    def _instance(self, module: str) -> T:
        classes = [
            value
            for _, value in inspect.getmembers(import_module(module), inspect.isclass)
            if value.__module__ == module and isinstance(getattr(value, "name", None), str) and not _is_helper(value)
        ]
        if len(classes) != 1:
            names = ", ".join(item.__name__ for item in classes) or "none"
            raise TypeError(f"{module} must define one {self.what} (a class with a `name`), it has: {names}")
        return cast(T, classes[0]())


def _is_helper(value: type[Any]) -> bool:
    return value.__name__.startswith("_")
