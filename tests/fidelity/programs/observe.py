"""A worker that writes down all that it can see of how it was started, one fact per function.

It is run by every launcher, and the tests compare what it wrote. Functions run in the order in
which they are written: what must be seen before torch or logging are imported comes first. Each
returns something that JSON can hold, without process ids and whatever else differs from run to run.
"""

import gc
import json
import os
import sys

FACTS = {}
HEAVY = set()


def fact(function):
    FACTS[function.__name__] = function
    return function


def heavy(function):
    """Takes its time, and is left out where QUICK is set."""
    HEAVY.add(function.__name__)
    return fact(function)


@fact
def arguments():
    return sys.argv


@fact
def original_arguments():
    return sys.orig_argv


@fact
def import_path():
    return sys.path


@fact
def import_machinery():
    return {
        "hooks": [getattr(hook, "__qualname__", str(hook)) for hook in sys.path_hooks],
        "prefix": [sys.prefix, sys.base_prefix, sys.exec_prefix, sys.executable],
        "bytecode": [sys.dont_write_bytecode, sys.pycache_prefix],
    }


@fact
def finders_of_modules():
    return [getattr(finder, "__name__", type(finder).__name__) for finder in sys.meta_path]


@fact
def modules_loaded():
    return sorted({name.partition(".")[0] for name in sys.modules})


@fact
def replaced_functions():
    """How the interpreter shows an exception, the two ways to leave it, and to a debugger."""
    functions = (sys.excepthook, sys.exit, os._exit, sys.breakpointhook)
    return [f.__name__ for f in functions if type(f) is not type(print)]


@fact
def interpreter_flags():
    return {name: getattr(sys.flags, name) for name in type(sys.flags).__match_args__}


@fact
def interpreter_options():
    return {"X": {key: str(value) for key, value in sys._xoptions.items()}, "W": sys.warnoptions}


@fact
def names_in_main():
    """In order, with the type of each, as far as the interpreter has put them there."""
    return [[name, type(value).__name__] for name, value in BORN_WITH.items()]


@fact
def main_module():
    main = sys.modules["__main__"]
    spec = main.__spec__
    return {
        "file": getattr(main, "__file__", "none"),
        "cached": getattr(main, "__cached__", "none"),
        "doc": (main.__doc__ or "")[:20],
        "package": main.__package__,
        "spec": spec and [spec.name, spec.origin, spec.parent, spec.has_location],
        "loader": [type(main.__loader__).__qualname__, vars(main.__loader__)],
        "builtins": main.__builtins__ is sys.modules["builtins"],
        "is_this_module": vars(main) is globals(),
        "text": repr(main)[:18],
    }


@fact
def names_in_builtins():
    import builtins

    return sorted(vars(builtins))


@fact
def current_directory():
    return [os.getcwd(), os.environ.get("PWD")]


@fact
def environment():
    """The same for the interpreter as for the programs that it starts."""
    told = dict(os.environ)
    import subprocess

    code = "import os, json; print(json.dumps(dict(os.environ)))"
    child = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True)
    inherited = json.loads(child.stdout)
    return {"told": told, "inherited": {k: inherited[k] for k in inherited if k != "LC_CTYPE"}}


@fact
def environment_in_c():
    """What getenv says, which is what libraries look at."""
    import ctypes

    getenv = ctypes.CDLL(None).getenv
    getenv.restype = ctypes.c_char_p
    names = ("RANK", "PYTHONPATH", "HOME", "OMP_NUM_THREADS", "DLROVER_PYTHONPATH", "LC_CTYPE")
    return {name: str(getenv(name.encode())) for name in names}


@fact
def creation_mask():
    mask = os.umask(0)
    os.umask(mask)
    return oct(mask)


@fact
def open_descriptors():
    """Those below 900; from there on they are the launcher's, as the page says."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue  # the directory itself
        if int(name) < 900:
            kind = target.partition(":")[0] if ":" in target else "file"
            found[name] = [kind, os.get_inheritable(int(name))]
    return dict(sorted(found.items()))


@fact
def signal_dispositions():
    import signal

    def shown(handler):
        if isinstance(handler, signal.Handlers):
            return handler.name
        return getattr(handler, "__name__", str(handler))

    return {signal.Signals(s).name: shown(signal.getsignal(s)) for s in range(1, 32)}


@fact
def signal_masks():
    """As the kernel has them, without our signal for stacks and those that faulthandler takes.

    32 and 33 are the C library's, once there has been a thread.
    """
    ours = sum(1 << (number - 1) for number in (4, 6, 7, 8, 11, 32, 33, 57))
    with open("/proc/self/status") as status:
        lines = dict(line.split(":\t") for line in status)
    names = ("SigBlk", "SigIgn", "SigPnd", "ShdPnd")
    masks = {name: int(lines[name], 16) for name in names}
    return {**masks, "SigCgt": int(lines["SigCgt"], 16) & ~ours}


@fact
def signal_wakeup():
    import signal

    return [signal.set_wakeup_fd(-1), signal.getitimer(signal.ITIMER_REAL)]


@fact
def process_group_and_session():
    pid = os.getpid()
    return {"leads group": os.getpgrp() == pid, "leads session": os.getsid(0) == pid}


@fact
def process_attributes():
    with open("/proc/self/status") as status:
        lines = dict(line.strip().split(":\t") for line in status)
    return {
        "nice": os.nice(0),
        "affinity": sorted(os.sched_getaffinity(0)),
        "ids": [os.getresuid(), os.getresgid(), os.getgroups()],
        "kernel": {name: lines[name] for name in ("NoNewPrivs", "Seccomp", "CapEff", "Umask")},
        "scheduler": os.sched_getscheduler(0),
        "dumpable": os.access("/proc/self/mem", os.R_OK),
    }


@fact
def command_line():
    with open("/proc/self/cmdline", "rb") as file:
        words = file.read().split(b"\0")
    with open("/proc/self/comm") as file:
        return {"cmdline": [word.decode() for word in words], "comm": file.read()}


@fact
def executable():
    return os.readlink("/proc/self/exe")


@fact
def resource_limits():
    import resource

    names = [name for name in dir(resource) if name.startswith("RLIMIT_")]
    return {name: resource.getrlimit(getattr(resource, name)) for name in names}


@fact
def standard_streams():
    return {name: stream_facts(getattr(sys, name)) for name in ("stdin", "stdout", "stderr")}


def stream_facts(stream):
    layers = []
    layer = stream.buffer
    while layer is not None:
        layers.append([type(layer).__name__, layer.mode, layer.name, layer.fileno()])
        layer = getattr(layer, "raw", None)
    return {
        "type": type(stream).__name__,
        "name": stream.name,
        "mode": stream.mode,
        "encoding": [stream.encoding, stream.errors, stream.newlines],
        "flags": [stream.line_buffering, stream.write_through, stream.seekable()],
        "terminal": stream.isatty(),
        "layers": layers,
        "closefd": getattr(stream.buffer, "raw", stream.buffer).closefd,
        "text": repr(stream),
        "chunk": stream._CHUNK_SIZE,
    }


@fact
def stand_ins_for_streams():
    return [sys.__stdin__ is sys.stdin, sys.__stdout__ is sys.stdout, sys.__stderr__ is sys.stderr]


@fact
def garbage_collector():
    """How much there is in the generations depends on what was loaded."""
    return [gc.isenabled(), gc.get_threshold(), len(gc.callbacks), gc.get_debug(), gc.garbage]


@fact
def objects_that_are_never_collected():
    return gc.get_freeze_count() > 0


@fact
def recursion_limit():
    return [sys.getrecursionlimit(), sys.getswitchinterval(), sys.get_int_max_str_digits()]


@fact
def recursion_room():
    """How deep a script can call before the limit is met."""

    def deeper(depth):
        try:
            return deeper(depth + 1)
        except RecursionError:
            return depth

    return deeper(0)


@fact
def trace_and_profile():
    return [sys.gettrace(), sys.getprofile(), sys.breakpointhook is sys.__breakpointhook__]


@fact
def last_exception():
    names = ("last_type", "last_value", "last_traceback", "ps1", "tracebacklimit")
    return [[name, hasattr(sys, name)] for name in names] + [list(sys.exc_info())]


@fact
def exit_functions():
    import atexit

    return atexit._ncallbacks()


@fact
def python_threads():
    import threading

    main = threading.main_thread()
    return {
        "names": [thread.name for thread in threading.enumerate()],
        "current_is_main": threading.current_thread() is main,
        "type": type(main).__name__,
        "ident": main.ident == threading.get_ident(),
        "native_id": main.native_id == os.getpid(),
        "stack_size": threading.stack_size(),
    }


@fact
def kernel_threads():
    return len(os.listdir("/proc/self/task"))


@fact
def children():
    with open(f"/proc/self/task/{os.getpid()}/children") as file:
        return file.read()


@fact
def locale_settings():
    import locale

    return {
        "all": locale.setlocale(locale.LC_ALL),
        "preferred": [locale.getpreferredencoding(), locale.getencoding()],
        "filesystem": [sys.getfilesystemencoding(), sys.getfilesystemencodeerrors()],
    }


@fact
def warning_filters():
    import warnings

    kinds = [[f[0], str(f[1]), f[2].__name__, str(f[3]), f[4]] for f in warnings.filters]
    return [kinds, warnings.showwarning.__name__, warnings.defaultaction]


@fact
def a_warning_at_module_level():
    return WARNING


@fact
def frames_below_the_script():
    return STACK


@fact
def a_traceback_printed_at_module_level():
    return PRINTED_STACK


@fact
def logging_before_torch():
    """A level that somebody has set for a library is seen in the libraries' own loggers."""
    import logging

    root = logging.getLogger()
    return {
        "root": [root.level, [type(h).__name__ for h in root.handlers], len(root.filters)],
        "disabled": logging.root.manager.disable,
        "levels": sorted(logging.getLevelNamesMapping().items()),
        "last_resort": str(logging.lastResort),
        "class": logging.getLoggerClass().__name__,
        "record": logging.getLogRecordFactory().__name__,
        "captures_warnings": logging._warnings_showwarning is not None,
    }


@fact
def hash_of_a_text():
    """Compared between runs when PYTHONHASHSEED is given."""
    return hash("text")


@fact
def decimal_context():
    import decimal

    return repr(decimal.getcontext())


@fact
def temporary_directory():
    import tempfile

    return [tempfile.gettempdir(), tempfile.tempdir is not None, tempfile.template]


@fact
def own_source():
    import inspect

    class Inner:
        pass

    return [
        inspect.getsource(own_source)[:30],
        inspect.getsource(Inner).strip(),
        inspect.getsourcefile(own_source),
        len(inspect.getsource(sys.modules["__main__"])),
    ]


@fact
def pickling_of_own_classes():
    import pickle

    found = pickle.loads(pickle.dumps([Point(1, 2), Point.norm]))
    return [found[0].norm(), found[1] is Point.norm, Point.__module__]


class Point:
    def __init__(self, x, y):
        self.x, self.y = x, y

    def norm(self):
        return self.x**2 + self.y**2


@fact
def code_of_functions():
    code = own_source.__code__
    return [
        code.co_filename,
        code.co_flags,
        own_source.__module__,
        own_source.__globals__ is globals(),
    ]


@fact
def annotations_and_future():
    compiled = compile("x: int = 1", "x", "exec")
    return [compiled.co_flags, "annotations" in globals()]


@fact
def modules_of_the_user():
    """A module beside the script is the script's own, and its __pycache__ is written or not."""
    import beside

    return [beside.__file__, beside.__cached__, os.path.exists(beside.__cached__)]


@fact
def customisation():
    """That of whoever has built this Python, and not the one of a launcher."""
    module = sys.modules.get("sitecustomize")
    return [getattr(module, "__file__", None), "usercustomize" in sys.modules]


@fact
def standard_input():
    if os.environ["LOCAL_RANK"] != "0":
        return None
    return [sys.stdin.readline(), sys.stdin.read(3), os.read(0, 5).decode()]


@fact
def random_numbers():
    """Differing between the ranks; compared as that."""
    import random

    return {"python": random.random(), "urandom": os.urandom(4).hex()}


@fact
def uuids():
    import uuid

    return {"uuid1": str(uuid.uuid1()), "uuid4": str(uuid.uuid4())}


@fact
def temporary_names():
    import tempfile

    return {"name": next(tempfile._get_candidate_names())}


@heavy
def numpy_state():
    import numpy

    printing = {k: str(v) for k, v in numpy.get_printoptions().items()}
    return {"printing": printing, "errors": numpy.geterr()}


@heavy
def numpy_random_numbers():
    import numpy

    return {"global": numpy.random.rand(), "generator": numpy.random.default_rng().random()}


@heavy
def torch_random_numbers():
    import torch

    return {"initial": torch.initial_seed(), "first": torch.rand(1).item()}


@heavy
def torch_threads():
    import torch

    return {
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS"),
        "intra": torch.get_num_threads(),
        "inter": torch.get_num_interop_threads(),
    }


@heavy
def torch_settings():
    import torch

    return {
        "dtype": str(torch.get_default_dtype()),
        "grad": torch.is_grad_enabled(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "precision": torch.get_float32_matmul_precision(),
        "device": str(torch.get_default_device()),
        "distributed": torch.distributed.is_initialized(),
        "elastic": torch.distributed.is_torchelastic_launched(),
        "sharing": torch.multiprocessing.get_sharing_strategy(),
        "cuda": [torch.cuda.is_initialized(), torch.cuda.is_available()],
        "anomaly": torch.is_anomaly_enabled(),
    }


@heavy
def logging_after_torch():
    """Loggers that torch's import makes, their levels and handlers."""
    import logging

    import torch  # noqa: F401

    loggers = {"root": logging.getLogger()}
    for name in ("torch", "torch.distributed", "torch._dynamo", "torch.distributed.elastic"):
        loggers[name] = logging.getLogger(name)
    return {
        name: [each.level, each.propagate, each.disabled, [type(h).__name__ for h in each.handlers]]
        for name, each in loggers.items()
    }


@heavy
def warning_filters_after_torch():
    import warnings

    import torch  # noqa: F401

    return len(warnings.filters)


@heavy
def a_large_product():
    """A forked process that inherited a pool of threads would never finish it."""
    import torch

    size = 512
    return float((torch.ones(size, size) @ torch.ones(size, size)).sum())


@heavy
def a_loader_with_workers():
    import torch
    from torch.utils.data import DataLoader

    data = [torch.tensor([n]) for n in range(8)]
    return [batch.flatten().tolist() for batch in DataLoader(data, batch_size=4, num_workers=1)]


def square(number):
    return number * number


def where_am_i(_):
    main = sys.modules["__main__"]
    return [__name__, main.__name__, os.path.basename(sys.argv[0]), getattr(main, "__file__", None)]


def pool_facts(method):
    import multiprocessing

    context = multiprocessing.get_context(method)
    with context.Pool(1) as pool:
        return [pool.map(square, [1, 2]), pool.map(where_am_i, [0])]


@heavy
def processes_by_fork():
    return pool_facts("fork")


@heavy
def processes_by_spawn():
    return pool_facts("spawn")


@heavy
def processes_by_forkserver():
    return pool_facts("forkserver")


@fact
def start_method():
    import multiprocessing

    process = multiprocessing.current_process()
    return [
        multiprocessing.get_start_method(),
        process.name,
        process._identity,
        multiprocessing.parent_process(),
        len(multiprocessing.active_children()),
    ]


@fact
def thread_pool():
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(square, [1, 2]))


@fact
def event_loop():
    import asyncio

    async def later():
        process = await asyncio.create_subprocess_exec("true")
        return await process.wait()

    return asyncio.run(later())


@fact
def fault_handler():
    import faulthandler

    return faulthandler.is_enabled()


@fact
def imports_of_the_launcher():
    """A script may use what the launcher is made of."""
    import typer

    import dlrover_cli

    dlrover_cli.heartbeat()
    return [typer.__name__, callable(typer.run), dlrover_cli.__name__]


@fact
def descriptors_after_all_that():
    return len([name for name in os.listdir("/proc/self/fd") if int(name) < 900])


def main():
    told = {}
    for name, observe in FACTS.items():
        if name in HEAVY and "QUICK" in os.environ:
            continue
        try:
            told[name] = observe()
        except BaseException as error:  # noqa: BLE001 - to be compared like any other fact
            told[name] = f"{type(error).__name__}: {error}"
    path = os.path.join(os.environ["FACTS"], os.environ["RANK"] + ".json")
    with open(path, "w") as file:
        json.dump(told, file)


if __name__ == "__main__":
    BORN_WITH = {name: value for name, value in globals().items() if name.startswith("__")}
    import io
    import traceback
    import warnings

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.warn("look at the caller", stacklevel=2)
    WARNING = [[str(w.filename), w.lineno, w.category.__name__] for w in caught]
    STACK = []
    frame = sys._getframe().f_back
    while frame is not None:
        STACK.append([frame.f_code.co_filename, frame.f_code.co_name])
        frame = frame.f_back
    PRINTED_STACK = io.StringIO()
    traceback.print_stack(file=PRINTED_STACK)
    PRINTED_STACK = PRINTED_STACK.getvalue()
    main()
