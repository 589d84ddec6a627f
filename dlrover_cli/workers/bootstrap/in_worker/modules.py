"""Which installed modules this worker has loaded by its first step, for those that follow it."""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

MODULES_FILE = "modules.txt"


def write_down(directory: str, known: "Collection[str]") -> None:
    """Leave a file with a name per line, in the order of their import; without ``known`` ones.

    The script's own modules are left out: they may be changed before the next attempt.
    """
    library = os.path.dirname(os.__file__) + os.sep
    names = []
    for name, module in list(sys.modules.items()):
        origin = getattr(getattr(module, "__spec__", None), "origin", None)
        if name in known or not isinstance(origin, str):
            continue
        if origin.startswith(library) or "site-packages" in origin or "dist-packages" in origin:
            names.append(name)
    path = os.path.join(directory, MODULES_FILE)
    with open(f"{path}.new", "w") as file:
        file.write("".join(f"{name}\n" for name in names))
    os.replace(f"{path}.new", path)
