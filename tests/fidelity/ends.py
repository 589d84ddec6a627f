"""Programs that end, one way each: what they leave on their streams, and with which status."""

import signal
import textwrap

_TRACED = """\
import atexit, os, signal, sys, threading, time
atexit.register(print, "first registered")
atexit.register(print, "last registered")
print("begins")
"""


def _program(body: str) -> str:
    return _TRACED + textwrap.dedent(body)


_EXITS = {
    "without an argument": "sys.exit()",
    "with None": "sys.exit(None)",
    "with zero": "sys.exit(0)",
    "with a number": "sys.exit(7)",
    "with 255": "sys.exit(255)",
    "with 256": "sys.exit(256)",
    "with a negative number": "sys.exit(-1)",
    "with a huge number": "sys.exit(2**100)",
    "with True": "sys.exit(True)",
    "with a text": "sys.exit('the last words')",
    "with an empty text": "sys.exit('')",
    "with bytes": "sys.exit(b'bytes')",
    "with a list": "sys.exit([1, 2])",
    "with a tuple": "sys.exit((3, 4))",
    "with an object": "sys.exit(type('Thing', (), {'__str__': lambda self: 'a thing'})())",
    "with an object that cannot be shown": (
        "sys.exit(type('Thing', (), {'__str__': lambda self: 1 / 0})())"
    ),
    "by raising": "raise SystemExit",
    "by raising with a number": "raise SystemExit(9)",
    "by raising a subclass": "class Mine(SystemExit):\n    code = 5\nraise Mine()",
    "by exit()": "exit(6)",
    "by quit()": "quit(6)",
    "in a function that is finally undone": "try:\n    sys.exit(3)\nfinally:\n    print('undone')",
    "in a thread": "thread = threading.Thread(target=sys.exit, args=(4,))\nthread.start()",
    "in an exit function": "def leave():\n    raise SystemExit(8)\n\natexit.register(leave)",
    "from under an excepthook": "sys.excepthook = lambda *_: sys.exit(11)\n1 / 0",
}

_EXCEPTIONS = {
    "plain": "raise ValueError('what is wrong')",
    "without a text": "raise ValueError",
    "in nested calls": """
        def outer():
            inner(0)

        def inner(number):
            return 1 / number

        outer()
        """,
    "chained": """
        try:
            {}['missing']
        except KeyError as error:
            raise RuntimeError('the consequence') from error
        """,
    "in a context": "try:\n    1 / 0\nfinally:\n    undefined",
    "a group": (
        "raise ExceptionGroup('all', [ValueError(1), ExceptionGroup('some', [KeyError(2)])])"
    ),
    "with a note": "error = ValueError('noted')\nerror.add_note('look here')\nraise error",
    "a class of the script": "class Mine(Exception):\n    pass\n\nraise Mine('own')",
    "not an Exception": "class Mine(BaseException):\n    pass\n\nraise Mine('base')",
    "whose text cannot be made": """
        class Mine(Exception):
            def __str__(self):
                raise RuntimeError('no text')

        raise Mine()
        """,
    "too deep": "def again():\n    again()\n\nagain()",
    "a syntax error at run time": "compile('x = = 1', 'generated.py', 'exec')",
    "a syntax error of eval": "eval('1 +')",
    "KeyboardInterrupt": "raise KeyboardInterrupt",
    "Ctrl-C": "os.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)",
    "Ctrl-C in a function": """
        def train():
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(60)

        train()
        """,
    "GeneratorExit": "raise GeneratorExit",
    "StopIteration": "next(iter([]))",
    "out of memory": "raise MemoryError",
    "with a limit on tracebacks": "sys.tracebacklimit = 0\n1 / 0",
    "shown by another hook": "sys.excepthook = lambda *e: print('hook', e[0].__name__)\n1 / 0",
    "with a hook that fails": "sys.excepthook = lambda *e: {}['hook']\n1 / 0",
    "with no hook": "sys.excepthook = None\n1 / 0",
    "with a closed stderr": "sys.stderr.close()\n1 / 0",
    "with no stderr": "sys.stderr = None\n1 / 0",
    "in a thread": """
        thread = threading.Thread(target=lambda: 1 / 0, name='worker')
        thread.start()
        thread.join()
        """,
    "in a thread with its own hook": """
        threading.excepthook = lambda args: print('thread hook', args.exc_type.__name__)
        threading.Thread(target=lambda: 1 / 0).start()
        """,
    "in an exit function": "atexit.register(lambda: 1 / 0)",
    "in an import": "import failing_module",
    "of a missing import": "import a_module_that_nobody_has",
    "in a destructor": """
        class Broken:
            def __del__(self):
                raise ValueError('in __del__')

        Broken()
        """,
    "in a destructor at the end": """
        class Broken:
            def __del__(self):
                print('goes with the module')

        kept = Broken()
        """,
    "in a coroutine that is never awaited": """
        async def forgotten():
            pass

        forgotten()
        """,
}

_ENDS = {
    "by reaching its end": "print('ends')",
    "by os._exit": "sys.stdout.write('not lost'); os._exit(5)",
    "by os._exit with a large number": "os._exit(300)",
    "by os.abort": "os.abort()",
    "by a segmentation fault": "import ctypes\nctypes.string_at(0)",
    "with a thread that goes on": """
        def later():
            threading.main_thread().join()
            print('thread ends')

        threading.Thread(target=later).start()
        print('main ends')
        """,
    "with a thread that goes on after an exception": """
        def later():
            threading.main_thread().join()
            print('thread ends')

        threading.Thread(target=later).start()
        raise ValueError('main is gone')
        """,
    "with a daemon thread": """
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
        print('main ends')
        """,
    "with an executor at work": """
        from concurrent.futures import ThreadPoolExecutor
        over = threading.Event()
        pool = ThreadPoolExecutor(1)
        pool.submit(lambda: (over.wait(), print('task ends')))
        print('main ends')
        over.set()
        """,
    "with a pool of processes at work": """
        from concurrent.futures import ProcessPoolExecutor
        pool = ProcessPoolExecutor(1)
        pool.submit(print, 'task ends', flush=True)
        """,
    "with a child by fork": """
        pid = os.fork()
        if pid == 0:
            sys.exit(3)
        print('child', os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        """,
    "with a child that raises": """
        pid = os.fork()
        if pid == 0:
            raise ValueError('in the child')
        print('child', os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        """,
    "with output that has no end of line": "sys.stdout.write('half a line')",
    "with text in a buffer of C": """
        import ctypes
        ctypes.CDLL(None).printf(b'from C\\n')
        os._exit(0)
        """,
    "with a broken pipe": """
        read, write = os.pipe()
        os.close(read)
        os.write(write, b'x')
        """,
    "with stdout closed": "os.close(1)\nprint('nowhere')",
    "with nothing left on its standard streams": "sys.stdout.close()",
    "by executing another program": """
        os.execv(sys.executable, [sys.executable, '-c', 'print("another"); raise SystemExit(4)'])
        """,
    "by executing itself again": """
        if 'AGAIN' not in os.environ:
            os.environ['AGAIN'] = '1'
            os.execv(sys.executable, sys.orig_argv)
        print('again', sys.argv[1:])
        sys.exit(4)
        """,
    "by a handler for SIGTERM": """
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(12))
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)
        """,
    "with a warning": "import warnings\nwarnings.warn('look out', stacklevel=2)",
    "with a deprecation": "import warnings\nwarnings.warn('old', DeprecationWarning)",
    "with a file that was never closed": "open(__file__)",
    "without its own name in an exit function": "atexit.register(lambda: print(__file__))",
    "with a log that nobody configured": "import logging\nlogging.warning('a log line')",
    "with a stack": "import traceback\n\ndef f():\n    traceback.print_stack()\n\nf()",
    "with a stack of all threads": """
        import faulthandler
        faulthandler.dump_traceback(1)
        """,
    "with a stack and a crash": """
        import faulthandler
        faulthandler.enable()
        os.kill(os.getpid(), signal.SIGSEGV)
        """,
    "with a breakpoint": "sys.breakpointhook = lambda: print('stops')\nbreakpoint()",
    "with a trace": """
        sys.settrace(lambda frame, event, arg: print(event, frame.f_code.co_name))
        (lambda: None)()
        sys.settrace(None)
        """,
}

_DEADLY = (
    *(signal.SIGHUP, signal.SIGQUIT, signal.SIGILL, signal.SIGTRAP, signal.SIGABRT, signal.SIGBUS),
    *(
        signal.SIGFPE,
        signal.SIGKILL,
        signal.SIGUSR1,
        signal.SIGSEGV,
        signal.SIGUSR2,
        signal.SIGALRM,
    ),
    *(signal.SIGTERM, signal.SIGSTKFLT, signal.SIGXCPU, signal.SIGVTALRM, signal.SIGPROF),
    *(signal.SIGIO, signal.SIGPWR, signal.SIGSYS),
)
_HARMLESS = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD, signal.SIGURG, signal.SIGWINCH)

# Texts that are no valid programs, or that are encoded in another way.
_TEXTS: dict[str, bytes] = {
    "a syntax error": b"print('never')\nx = = 1\n",
    "a syntax error in the last line": b"print('never')\ndef f(:",
    "an indentation error": b"if True:\nprint('never')\n",
    "a tab error": b"if True:\n\tx = 1\n        y = 2\n",
    "an unfinished text": b"x = '''abc\n",
    "an unfinished bracket": b"x = (1,\n",
    "a misplaced return": b"return 1\n",
    "a misplaced future": b"x = 1\nfrom __future__ import annotations\n",
    "a zero byte": b"x = 1\0\n",
    "another encoding": "# -*- coding: latin-1 -*-\nprint(ascii('é'))\n".encode("latin-1"),
    "an unknown encoding": b"# -*- coding: klingon -*-\nprint(1)\n",
    "wrong UTF-8": b"print('\xff')\n",
    "a byte order mark": b"\xef\xbb\xbfprint('marked')\nimport missing_one\n",
    "carriage returns": b"print('one')\r\nprint('''a\r\nb'''.encode())\r\n1 / 0\r\n",
    "a form feed": b"\x0cprint('fed')\n",
    "a first line for the shell": b"#!/usr/bin/env python\nprint('run')\n1/0\n",
    "nothing": b"",
    "a future import": b"from __future__ import annotations\nx: y = 1\nprint(__annotations__)\n",
    "annotations": b"x: int = 1\nprint(__annotations__)\n",
    "a docstring": b"'''what it is'''\nprint(__doc__)\n1/0\n",
    "a long line in a traceback": b"x = [" + b"1, " * 100 + b"1 / 0]\n",
    "wide characters in a traceback": "x = '日本' + 1 / 0\n".encode(),
    "an own stack limit": b"import sys\nsys.setrecursionlimit(80)\ndef f(n):\n    f(n + 1)\nf(0)\n",
}

PROGRAMS: dict[str, bytes] = {
    **{f"sys.exit {name}": _program(body).encode() for name, body in _EXITS.items()},
    **{f"an exception {name}": _program(body).encode() for name, body in _EXCEPTIONS.items()},
    **{f"an end {name}": _program(body).encode() for name, body in _ENDS.items()},
    **{
        f"a signal: {number.name}": _program(f"os.kill(os.getpid(), {int(number)})\n").encode()
        for number in (*_DEADLY, *_HARMLESS)
    },
    **{f"a text with {name}": text for name, text in _TEXTS.items()},
}
"""By what they show; some import `failing_module`, which stands beside them."""

FAILING_MODULE = "def f():\n    1 / 0\n\nf()\n"
