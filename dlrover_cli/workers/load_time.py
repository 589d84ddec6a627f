"""Variables that torch reads when it is loaded: a warm worker's script sets them too late.

That is the one thing that a script can do in a fresh worker and not in a warm one, so it is said.
"""

import os
import sys
from collections.abc import Mapping
from contextlib import suppress

_NAMES = frozenset(
    {
        "CUDA_MODULE_LOADING",
        "KMP_AFFINITY",
        "KMP_BLOCKTIME",
        "LD_LIBRARY_PATH",
        "PYTORCH_ALLOC_CONF",
        "PYTORCH_CUDA_ALLOC_CONF",
        "PYTORCH_JIT",
        "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
        "TORCH_COMPILE_DEBUG",
        "TORCH_CPP_LOG_LEVEL",
        "TORCH_DEVICE_BACKEND_AUTOLOAD",
        "TORCH_DISTRIBUTED_DEBUG",
        "TORCH_LOGS",
        "TORCH_LOGS_FORMAT",
        "TORCH_LOGS_OUT",
        "TORCH_SHOW_CPP_STACKTRACES",
    }
)
_PREFIXES = ("OMP_", "MKL_", "OPENBLAS_", "GOMP_", "NPY_", "TORCHDYNAMO_", "TORCHINDUCTOR_")
_READ_WHEN_USED = frozenset({"TORCHINDUCTOR_CACHE_DIR"})  # and set by torch itself


def is_read_at_load_time(name: str) -> bool:
    """Whether the variable has its effect, or most of it, while torch is being imported."""
    if name in _READ_WHEN_USED:
        return False
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
            # Closed or replaced by the script, who would get our exception for its assignment.
            with suppress(OSError, ValueError, AttributeError):
                sys.stderr.write(
                    f"dlrover-run: the script sets {name} after torch was loaded, where it may "
                    "have no effect; export it before the launch, or use --worker_start=fresh\n"
                )

    sys.addaudithook(notice)
