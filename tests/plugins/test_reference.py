"""A reference loads, or says which of its many ways of being wrong it has."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dlrover_cli.contracts import DynamicAgentFailoverExtension, DynamicFailoverExtension
from dlrover_cli.errors import PluginError
from dlrover_cli.plugins.faults import PluginFault
from dlrover_cli.plugins.reference import (
    Reference,
    load_reference,
    loaded_from,
    parse_reference,
)
from tests.plugins.user_code import UserCode

Load = Callable[..., object]

EXTENSION = """
    from dlrover_cli.contracts import DynamicAgentFailoverExtension, FailoverStrategy

    class MyExtension(DynamicAgentFailoverExtension):
        def get_user_failover_strategy(self, failure_info):
            return FailoverStrategy.NODE_FAILOVER
"""


@pytest.fixture
def load(user: UserCode) -> Load:
    def load(text: str, base: type | None = None) -> object:
        return load_reference(text, option="--plugin", base=base, roots=user.roots)

    return load


def refused(call: Callable[[], object], reason: PluginFault) -> tuple[str, str]:
    """The sentence and the hint of the PluginError that the call raises for this reason."""
    with pytest.raises(PluginError) as caught:
        call()
    assert caught.value.reason is reason, caught.value.message
    assert caught.value.exit_code == 2
    assert caught.value.hint
    assert "\n" not in caught.value.message
    return caught.value.message, caught.value.hint


class TestParsing:
    def test_module_and_class_are_split(self) -> None:
        assert parse_reference("pkg.mod::Cls") == Reference("pkg.mod", "Cls")

    def test_a_nested_class_is_kept_whole(self) -> None:
        assert parse_reference(" pkg.mod :: Outer.Inner ") == Reference("pkg.mod", "Outer.Inner")

    @pytest.mark.parametrize(
        "text,suggestion",
        [
            ("mod:Cls", "mod::Cls"),
            ("pkg.mod.Cls", "pkg.mod::Cls"),
            ("mod", "mod::MyClass"),
            ("dir/mod.py", "dir.mod::MyClass"),
            ("", "module::MyClass"),
        ],
    )
    def test_without_two_colons_the_hint_shows_them(self, text: str, suggestion: str) -> None:
        _, hint = refused(lambda: parse_reference(text), PluginFault.NO_SEPARATOR)
        assert suggestion in hint

    @pytest.mark.parametrize(
        "text", ["::Cls", "mod::", "::", "a..b::Cls", "mod::A..B", ".mod::Cls", "mod.::Cls"]
    )
    def test_an_empty_part_is_refused(self, text: str) -> None:
        refused(lambda: parse_reference(text), PluginFault.EMPTY_PART)

    @pytest.mark.parametrize(
        "text,suggestion",
        [
            ("a::b::c", "a::b.c"),
            ("dir/mod.py::Cls", "dir.mod::Cls"),
            ("mod.py::Cls", "mod::Cls"),
            ("./dir/mod::Cls", "dir.mod::Cls"),
        ],
    )
    def test_another_form_is_refused_with_the_right_one(self, text: str, suggestion: str) -> None:
        _, hint = refused(lambda: parse_reference(text), PluginFault.MALFORMED)
        assert hint.endswith(suggestion)

    def test_the_sentence_begins_with_the_option_and_what_was_typed(self) -> None:
        message, _ = refused(
            lambda: parse_reference("mod", option="--rdzv_handler"), PluginFault.NO_SEPARATOR
        )
        assert message.startswith("--rdzv_handler=mod: ")


class TestLoading:
    def test_a_class_is_loaded(self, user: UserCode, load: Load) -> None:
        path = user.write("mymod.py", EXTENSION)
        loaded = load("mymod::MyExtension", DynamicFailoverExtension)
        assert isinstance(loaded, type)
        assert loaded.__name__ == "MyExtension"
        assert loaded_from(loaded) == str(path)

    def test_a_nested_class_is_loaded(self, user: UserCode, load: Load) -> None:
        user.write("mymod.py", "class Outer:\n    class Inner: pass\n")
        assert getattr(load("mymod::Outer.Inner"), "__qualname__", None) == "Outer.Inner"

    def test_a_function_is_loaded_where_any_callable_will_do(
        self, user: UserCode, load: Load
    ) -> None:
        user.write("mymod.py", "def create(): return 1\n")
        assert callable(load("mymod::create"))

    def test_the_roots_come_first_while_importing_and_last_afterwards(
        self, user: UserCode, load: Load
    ) -> None:
        user.write("mymod.py", "import sys\nclass Cls: first = sys.path[0]\n")
        before = list(sys.path)
        assert getattr(load("mymod::Cls"), "first", None) == str(user.root)
        assert sys.path == [*before, str(user.root)]

    def test_what_the_module_does_to_the_path_is_kept(self, user: UserCode, load: Load) -> None:
        user.write("mymod.py", "import sys\nsys.path.insert(0, '/added')\nclass Cls: pass\n")
        load("mymod::Cls")
        assert sys.path[0] == "/added"
        assert sys.path[-1] == str(user.root)

    def test_a_neighbour_can_be_imported_later(self, user: UserCode, load: Load) -> None:
        user.write("neighbour_of_mine.py", "VALUE = 7\n")
        user.write(
            "mymod.py",
            """
            class Cls:
                def late(self):
                    import neighbour_of_mine
                    return neighbour_of_mine.VALUE
            """,
        )
        cls = load("mymod::Cls")
        assert isinstance(cls, type)
        assert cls().late() == 7

    def test_the_first_root_wins(self, user: UserCode) -> None:
        user.write("one/mymod.py", "class Cls: place = 'one'\n")
        user.write("two/mymod.py", "class Cls: place = 'two'\n")
        roots = [user.root / "one", user.root / "two"]
        loaded = load_reference("mymod::Cls", option="--plugin", base=None, roots=roots)
        assert getattr(loaded, "place", None) == "one"

    @pytest.mark.parametrize("with_init", [True, False])
    def test_a_folder_called_test_is_not_hidden_by_pythons_own(
        self, user: UserCode, load: Load, with_init: bool
    ) -> None:
        user.write("test/user_def_failover.py", EXTENSION)
        if with_init:
            user.write("test/__init__.py", "")
        assert load("test.user_def_failover::MyExtension", DynamicFailoverExtension)

    def test_a_folder_called_test_is_found_after_pythons_own_was_imported(
        self, user: UserCode, load: Load
    ) -> None:
        import test.support  # noqa: F401 - now the name is taken

        user.write("test/__init__.py", "")
        user.write("test/deeper/user_def_failover.py", EXTENSION)
        assert load("test.deeper.user_def_failover::MyExtension", DynamicFailoverExtension)

    def test_an_object_that_took_the_modules_place_is_looked_into(
        self, user: UserCode, load: Load
    ) -> None:
        user.write(
            "mymod.py",
            """
            import sys
            class Cls: pass
            class Lazy:
                __slots__ = ()
                Cls = Cls
            sys.modules[__name__] = Lazy()
            """,
        )
        assert getattr(load("mymod::Cls"), "__name__", None) == "Cls"
        refused(lambda: load("mymod::Gone"), PluginFault.NO_ATTRIBUTE)

    def test_a_root_that_is_not_there_does_no_harm(self, user: UserCode) -> None:
        user.write("mymod.py", "class Cls: pass\n")
        roots = [user.root / "gone", user.root]
        assert load_reference("mymod::Cls", option="--plugin", base=None, roots=roots)


class TestModuleFaults:
    def test_a_missing_module_says_which_file_was_looked_for(
        self, user: UserCode, load: Load
    ) -> None:
        message, _ = refused(lambda: load("pkg_x.mod::Cls"), PluginFault.NO_MODULE)
        assert "pkg_x.py" in message
        assert str(user.root) in message

    def test_a_missing_module_in_a_package_says_so(self, user: UserCode, load: Load) -> None:
        user.write("pkg_y/other.py", "")
        message, _ = refused(lambda: load("pkg_y.mod::Cls"), PluginFault.NO_MODULE)
        assert "pkg_y/mod.py" in message

    def test_the_nearest_module_is_suggested(self, user: UserCode, load: Load) -> None:
        user.write("pkg/mymetrics.py", "")
        _, hint = refused(lambda: load("pkg.mymetric::Cls"), PluginFault.NO_MODULE)
        assert hint == "did you mean 'pkg.mymetrics'?"

    def test_a_file_where_a_folder_was_meant_is_named(self, user: UserCode, load: Load) -> None:
        path = user.write("mymod.py", "class Outer:\n    class Inner: pass\n")
        message, hint = refused(lambda: load("mymod.Outer::Inner"), PluginFault.NO_MODULE)
        assert str(path) in message
        assert "mymod::Outer" in hint

    def test_a_dependency_that_is_missing_is_told_from_the_module_itself(
        self, user: UserCode, load: Load
    ) -> None:
        path = user.write("mymod.py", "import os\nimport not_installed_anywhere\n")
        message, hint = refused(lambda: load("mymod::Cls"), PluginFault.MISSING_DEPENDENCY)
        assert "'mymod' was found" in message
        assert "'not_installed_anywhere'" in message
        assert f"{path}:2" in message
        assert "not_installed_anywhere" in hint

    def test_another_part_of_dlrover_hints_at_the_package(self, user: UserCode, load: Load) -> None:
        user.write("mymod.py", "from dlrover.python.common.log import default_logger\n")
        message, hint = refused(lambda: load("mymod::Cls"), PluginFault.MISSING_DEPENDENCY)
        assert "'dlrover.python.common.log'" in message
        assert "install the dlrover package" in hint

    def test_a_syntax_error_is_shown_with_file_and_line(self, user: UserCode, load: Load) -> None:
        path = user.write("mymod.py", "x = 1\ndef broken(:\n")
        message, _ = refused(lambda: load("mymod::Cls"), PluginFault.SYNTAX_ERROR)
        assert f"{path}:2" in message

    def test_a_syntax_error_in_a_neighbour_is_shown_where_it_is(
        self, user: UserCode, load: Load
    ) -> None:
        path = user.write("neighbour.py", "\n\nfor\n")
        user.write("mymod.py", "import neighbour\n")
        message, _ = refused(lambda: load("mymod::Cls"), PluginFault.SYNTAX_ERROR)
        assert f"{path}:3" in message

    def test_a_syntax_error_in_text_that_the_module_parses_is_an_exception_like_others(
        self, user: UserCode, load: Load
    ) -> None:
        path = user.write("mymod.py", "import ast\nast.literal_eval('1 +')\n")
        message, _ = refused(lambda: load("mymod::Cls"), PluginFault.IMPORT_RAISED)
        assert f"{path}:2" in message

    @pytest.mark.parametrize("leave", ["sys.exit(3)", "raise SystemExit(3)", "exit(3)"])
    def test_a_module_that_exits_is_a_script(self, user: UserCode, load: Load, leave: str) -> None:
        path = user.write("mymod.py", f"import sys\n{leave}\n")
        message, hint = refused(lambda: load("mymod::Cls"), PluginFault.EXITS_AT_IMPORT)
        assert "sys.exit(3)" in message
        assert str(path) in message or leave == "exit(3)"
        assert "__main__" in hint

    def test_an_exception_is_shown_with_the_users_own_line(
        self, user: UserCode, load: Load
    ) -> None:
        path = user.write("mymod.py", "import json\n\nconfig = json.loads('{')\n")
        message, _ = refused(lambda: load("mymod::Cls"), PluginFault.IMPORT_RAISED)
        assert "JSONDecodeError" in message
        assert f"{path}:3" in message

    def test_an_exception_that_is_no_exception_class_is_caught_too(
        self, user: UserCode, load: Load
    ) -> None:
        user.write("mymod.py", "class Odd(BaseException): pass\nraise Odd('strange')\n")
        message, _ = refused(lambda: load("mymod::Cls"), PluginFault.IMPORT_RAISED)
        assert "Odd: strange" in message

    def test_an_exception_whose_text_raises_is_named(self, user: UserCode, load: Load) -> None:
        user.write(
            "mymod.py",
            """
            class Mute(Exception):
                def __str__(self): raise ValueError
            raise Mute
            """,
        )
        message, _ = refused(lambda: load("mymod::Cls"), PluginFault.IMPORT_RAISED)
        assert "raised Mute (at" in message

    def test_ctrl_c_while_importing_is_not_the_plugins_fault(
        self, user: UserCode, load: Load
    ) -> None:
        user.write("mymod.py", "raise KeyboardInterrupt\n")
        before = list(sys.path)
        with pytest.raises(KeyboardInterrupt):
            load("mymod::Cls")
        assert sys.path == [*before, str(user.root)]

    def test_a_signal_while_importing_is_not_the_plugins_fault(
        self, user: UserCode, load: Load
    ) -> None:
        user.write(
            "mymod.py",
            """
            import signal
            from torch.distributed.elastic.multiprocessing.api import SignalException
            raise SignalException("stop", sigval=signal.SIGTERM)
            """,
        )
        from torch.distributed.elastic.multiprocessing.api import SignalException

        with pytest.raises(SignalException):
            load("mymod::Cls")


class TestAttributeFaults:
    def test_the_nearest_class_is_suggested(self, user: UserCode, load: Load) -> None:
        user.write("mymod.py", EXTENSION)
        message, hint = refused(lambda: load("mymod::MyExtention"), PluginFault.NO_ATTRIBUTE)
        assert str(user.root / "mymod.py") in message
        assert hint == "did you mean 'MyExtension'?"

    def test_with_nothing_near_the_classes_of_the_module_are_listed_own_first(
        self, user: UserCode, load: Load
    ) -> None:
        user.write("mymod.py", "from pathlib import Path\nclass Zebra: pass\n")
        _, hint = refused(lambda: load("mymod::Qqq"), PluginFault.NO_ATTRIBUTE)
        assert hint.endswith("Zebra, Path")

    def test_a_module_without_classes_is_said_to_be_one(self, user: UserCode, load: Load) -> None:
        user.write("mymod.py", "x = 1\n")
        _, hint = refused(lambda: load("mymod::Cls"), PluginFault.NO_ATTRIBUTE)
        assert "no class in it" in hint

    def test_a_missing_inner_class_names_the_outer_one(self, user: UserCode, load: Load) -> None:
        user.write("mymod.py", "class Outer:\n    class Inner: pass\n")
        message, hint = refused(lambda: load("mymod::Outer.Iner"), PluginFault.NO_ATTRIBUTE)
        assert "no 'Iner' in Outer" in message
        assert "'Inner'" in hint

    def test_a_module_after_the_colons_is_moved_before_them(
        self, user: UserCode, load: Load
    ) -> None:
        user.write("pkg/mymod.py", "class Cls: pass\n")
        _, hint = refused(lambda: load("pkg::mymod.Cls"), PluginFault.NO_ATTRIBUTE)
        assert "pkg.mymod::Class" in hint

    def test_a_file_hidden_by_an_installed_module_is_named(
        self, user: UserCode, load: Load
    ) -> None:
        path = user.write("json/decoder.py", "class MyExtension: pass\n")
        _, hint = refused(lambda: load("json.decoder::MyExtension"), PluginFault.NO_ATTRIBUTE)
        assert hint.startswith(f"{path} is hidden")

    def test_a_lookup_that_raises_is_shown(self, user: UserCode, load: Load) -> None:
        path = user.write("mymod.py", "def __getattr__(name):\n    raise RuntimeError('lazy')\n")
        message, _ = refused(lambda: load("mymod::Cls"), PluginFault.IMPORT_RAISED)
        assert "RuntimeError: lazy" in message
        assert f"{path}:2" in message


class TestClassFaults:
    def test_a_function_where_a_class_is_needed(self, user: UserCode, load: Load) -> None:
        user.write("mymod.py", "def create(): pass\n")
        message, _ = refused(
            lambda: load("mymod::create", DynamicFailoverExtension), PluginFault.NOT_A_CLASS
        )
        assert "a function" in message

    def test_an_instance_leads_to_its_class(self, user: UserCode, load: Load) -> None:
        user.write("mymod.py", EXTENSION + "\n    instance = MyExtension()\n")
        _, hint = refused(
            lambda: load("mymod::instance", DynamicFailoverExtension), PluginFault.NOT_A_CLASS
        )
        assert hint.endswith("mymod::MyExtension")

    def test_a_module_leads_into_itself(self, user: UserCode, load: Load) -> None:
        user.write("mymod.py", "import json\n")
        _, hint = refused(
            lambda: load("mymod::json", DynamicFailoverExtension), PluginFault.NOT_A_CLASS
        )
        assert "json::Class" in hint

    def test_a_value_where_any_callable_would_do(self, user: UserCode, load: Load) -> None:
        user.write("mymod.py", "number = 5\n")
        message, _ = refused(lambda: load("mymod::number"), PluginFault.NOT_CALLABLE)
        assert "type int" in message

    def test_a_wrong_base_is_named_with_the_right_one(self, user: UserCode, load: Load) -> None:
        user.write("mymod.py", "class Wrong(dict): pass\n")
        message, hint = refused(
            lambda: load("mymod::Wrong", DynamicAgentFailoverExtension), PluginFault.WRONG_BASE
        )
        assert "DynamicAgentFailoverExtension" in message
        assert "derives from dict" in message
        assert "imported from dlrover_cli.contracts" in hint

    def test_abstract_methods_that_are_left_are_named(self, user: UserCode, load: Load) -> None:
        user.write(
            "mymod.py",
            """
            from dlrover_cli.contracts import DynamicAgentFailoverExtension
            class Half(DynamicAgentFailoverExtension):
                def get_user_failover_stratgy(self, info): pass
            """,
        )
        message, _ = refused(
            lambda: load("mymod::Half", DynamicFailoverExtension), PluginFault.ABSTRACT_METHODS
        )
        assert message.endswith("leaves abstract: get_user_failover_strategy")


def test_every_fault_has_its_own_word() -> None:
    assert len({fault.value for fault in PluginFault}) == len(PluginFault)


def test_nothing_in_plugins_imports_torch(tmp_path: Path) -> None:
    import subprocess

    names = [
        f"dlrover_cli.plugins.{path.stem}"
        for path in (Path(__file__).parents[2] / "dlrover_cli/plugins").glob("*.py")
        if path.stem != "__init__"
    ]
    code = f"import sys, {', '.join(names)}; sys.exit('torch' in sys.modules)"
    environment = {"PYTHONPATH": str(Path(__file__).parents[2])}
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path, env=environment)
