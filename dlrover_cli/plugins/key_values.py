"""`key=value` settings for a constructor: it gets those it has parameters for, or all of them."""

from collections.abc import Mapping
from inspect import Parameter
from typing import Any

from dlrover_cli.plugins.construct import signature_of

WHOLE = frozenset({"cfg", "config", "params", "metrics_cfg"})
"""A parameter of such a name gets all settings as one dict."""


class TakenKeys:
    """What the constructor of one class takes of a user's `key=value` settings."""

    def __init__(self, target: type) -> None:
        signature = signature_of(target)
        parameters = [] if signature is None else list(signature.parameters.values())
        self._named = {
            parameter.name: parameter
            for parameter in parameters
            if parameter.kind in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
        }
        self._any = any(parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters)

    def takes(self, key: str) -> bool:
        return self._any or key in self._named or not WHOLE.isdisjoint(self._named)

    def arguments(self, settings: Mapping[str, str]) -> dict[str, Any]:
        """The keyword arguments to construct with; values stay the strings that were typed."""
        arguments: dict[str, Any] = {
            key: value for key, value in settings.items() if self._any or key in self._named
        }
        for name in WHOLE & self._named.keys() - settings.keys():
            if settings or self._is_required(name):
                arguments[name] = dict(settings)
        return arguments

    def lacking(self, arguments: Mapping[str, Any]) -> list[str]:
        """The parameters without a default that `arguments` has nothing for."""
        return [name for name in self._named if self._is_required(name) and name not in arguments]

    def __str__(self) -> str:
        return ", ".join(self._named) or "none"

    def _is_required(self, name: str) -> bool:
        return self._named[name].default is Parameter.empty
