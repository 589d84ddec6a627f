"""Variables that torch reads when it is loaded: a warm worker's script sets them too late.

That is the one thing that a script can do in a fresh worker and not in a warm one, so it is said.
"""

import os
import sys
from collections.abc import Mapping

_NAMES = frozenset(
    {
        "CUDA_MODULE_LOADING",
        "KMP_AFFINITY",
        "KMP_BLOCKTIME",
        "LD_LIBRARY_PATH",
        "PYTORCH_ALLOC_CONF",
        "PYTORCH_CUDA_ALLOC_CONF",
        "PYTORCH_JIT",
        "TORCH_LOGS",
        "TORCH_LOGS_FORMAT",
        "TORCH_LOGS_OUT",
        "TORCH_SHOW_CPP_STACKTRACES",
    }
)
_PREFIXES = ("OMP_", "MKL_", "OPENBLAS_", "GOMP_", "TORCHDYNAMO_", "TORCHINDUCTOR_")


def is_read_at_load_time(name: str) -> bool:
    """Whether the variable has its effect, or most of it, while torch is being imported."""
    return name in _NAMES or name.startswith(_PREFIXES)


def watch_load_time_variables(environ: Mapping[str, str]) -> None:
    """Say once, on the first local rank's stderr, that a variable was set too late to matter."""
    if environ.get("LOCAL_RANK") != "0":
        return
    pid = os.getpid()
    said = False

    def notice(event: str, args: tuple[object, ...]) -> None:
        nonlocal said
        if event != "os.putenv" or said or os.getpid() != pid:
            return
        name, value = (os.fsdecode(each) for each in args)  # type: ignore[arg-type]
        if is_read_at_load_time(name) and environ.get(name) != value:
            said = True
            sys.stderr.write(
                f"dlrover-run: the script sets {name} after torch was loaded, where it may have no "
                "effect; export it before the launch, or use --worker_start=fresh\n"
            )

    sys.addaudithook(notice)
