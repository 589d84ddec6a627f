"""Job plugins come from packages, references and programs, and a bad one costs only itself."""

import json
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dlrover_cli.contracts import register_job_plugin
from dlrover_cli.contracts.job_registry import registered_plugins, registering_aside
from dlrover_cli.errors import PluginError
from dlrover_cli.jobs.plugins import (
    GROUP,
    InstalledPlugin,
    PluginSource,
    find_plugin,
    installed_plugins,
    load_plugin,
)
from tests.jobs.good_plugin import MoonRover
from tests.plugins.user_code import UserCode, forgetting_imports

ROOT = Path(__file__).parents[2]
GOOD = (Path(__file__).parent / "good_plugin.py").read_text()


@pytest.fixture
def user(tmp_path: Path) -> Iterator[UserCode]:
    """A folder with the good plugin as `rover.py`; what is loaded and registered is forgotten."""
    with forgetting_imports(tmp_path), registering_aside():
        code = UserCode(tmp_path)
        code.write("rover.py", GOOD)
        yield code


@pytest.fixture
def install(user: UserCode, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Installs a package with these entry points, the dashes in their names as underscores."""
    monkeypatch.syspath_prepend(user.root)

    def install(package: str = "rovers", version: str = "1.5", **announced: str) -> None:
        info = f"{package}-{version}.dist-info"
        user.write(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {package}\n")
        with (user.root / info / "METADATA").open("a") as metadata:
            metadata.write(f"Version: {version}\n")
        lines = [f"{name.replace('_', '-')} = {value}" for name, value in announced.items()]
        user.write(f"{info}/entry_points.txt", "\n".join([f"[{GROUP}]", *lines, ""]))

    return install


def others(plugins: tuple[InstalledPlugin, ...]) -> dict[str, InstalledPlugin]:
    """Without those that come with this project."""
    return {each.name: each for each in plugins if each.distribution != "dlrover-cli"}


def refused(call: Callable[[], object]) -> PluginError:
    with pytest.raises(PluginError) as caught:
        call()
    assert "\n" not in caught.value.message
    assert caught.value.exit_code == 2
    assert caught.value.hint
    return caught.value


def find(
    platform: str = "moon", engine: str = "rover", reference: str | None = None, root: Any = None
) -> tuple[Any, PluginSource]:
    roots = [] if root is None else [root]
    return find_plugin(platform, engine, reference=reference, roots=roots)


class TestReferences:
    def test_a_class_in_the_folder_of_the_job_file_is_found(self, user: UserCode) -> None:
        plugin, source = find(reference="rover::MoonRover", root=user.root)
        assert type(plugin).__name__ == "MoonRover"
        assert source == PluginSource(None, "rover::MoonRover", (str(user.root),))

    def test_another_process_loads_the_same_plugin(self, user: UserCode) -> None:
        _, source = find(reference="rover::MoonRover", root=user.root)
        program = (
            "import json, sys\n"
            "from dlrover_cli.jobs.plugins import PluginSource, load_plugin\n"
            "plugin = load_plugin(PluginSource.from_json(json.loads(sys.argv[1])))\n"
            "print(sys.modules[type(plugin).__module__].__file__)\n"
            "print('torch' in sys.modules)\n"
        )
        finished = subprocess.run(
            [sys.executable, "-P", "-c", program, json.dumps(source.to_json())],
            cwd="/",
            text=True,
            capture_output=True,
        )
        assert finished.stdout == f"{user.root / 'rover.py'}\nFalse\n", finished.stderr

    def test_a_source_comes_back_from_json(self) -> None:
        for source in (PluginSource("a", None), PluginSource(None, "a::B", ("/x", "/y"))):
            assert PluginSource.from_json(json.loads(json.dumps(source.to_json()))) == source

    def test_a_module_that_registers_its_plugin_does_so_for_nobody_else(
        self, user: UserCode
    ) -> None:
        register_job_plugin(MoonRover)
        tutorial = "\nfrom dlrover_cli.contracts import register_job_plugin\n"
        user.write("mine.py", GOOD + tutorial + "register_job_plugin(MoonRover())\n")
        plugin, _ = find(reference="mine::MoonRover", root=user.root)
        assert type(plugin).__module__ == "mine"
        assert type(registered_plugins()["moon", "rover"]) is MoonRover

    def test_a_plugin_for_another_pair_is_refused(self, user: UserCode) -> None:
        error = refused(lambda: find("local", "torch", "rover::MoonRover", user.root))
        assert error.message == (
            "job plugin 'rover::MoonRover': it runs moon/rover, and the job says local/torch"
        )
        assert "write platform: moon and engine: rover" in (error.hint or "")

    def test_what_is_printed_on_import_stays_out_of_stdout(
        self, user: UserCode, capsys: pytest.CaptureFixture[str]
    ) -> None:
        user.write("loud.py", "print('hello')\n" + GOOD)
        find(reference="loud::MoonRover", root=user.root)
        printed = capsys.readouterr()
        assert (printed.out, printed.err) == ("", "hello\n")


class TestRegistered:
    def test_what_the_program_registered_is_found_first(self, install: Callable[..., None]) -> None:
        install(moon_rover="rover:MoonRover")
        mine = MoonRover()
        register_job_plugin(mine)
        plugin, source = find()
        assert plugin is mine
        assert source.reference == "tests.jobs.good_plugin::MoonRover"
        assert source.roots == (str(ROOT),)

    def test_one_that_another_process_cannot_import_is_refused(self, user: UserCode) -> None:
        class Local(MoonRover):
            pass

        register_job_plugin(Local)
        assert "another process cannot import it" in refused(find).message


class TestInstalled:
    @pytest.mark.parametrize("name", ["moon_rover", "my_plugin"])
    def test_an_announced_class_is_found(self, install: Callable[..., None], name: str) -> None:
        install(**{name: "rover:MoonRover"})
        plugin, source = find()
        assert type(plugin).__module__ == "rover"
        assert source == PluginSource(name.replace("_", "-"), None)
        assert type(load_plugin(source)) is type(plugin)

    def test_an_announced_object_is_taken_as_it_is(
        self, install: Callable[..., None], user: UserCode
    ) -> None:
        user.write("made.py", "import rover\nplugin = rover.MoonRover()\nplugin.size = 3\n")
        install(moon_rover="made:plugin")
        plugin, source = find()
        assert plugin.size == 3
        assert load_plugin(source) is plugin

    def test_the_list_says_what_is_there_and_how_long_it_took(
        self, install: Callable[..., None]
    ) -> None:
        install(moon_rover="rover:MoonRover")
        found = others(installed_plugins())["moon-rover"]
        assert (found.value, found.distribution, found.version) == (
            *("rover:MoonRover", "rovers", "1.5"),
        )
        assert (found.pair, found.error) == (("moon", "rover"), None)
        assert 0 < found.import_seconds < 60

    def test_those_of_this_project_are_announced_as_anybodys(self) -> None:
        names = {each.name for each in installed_plugins() if each.distribution == "dlrover-cli"}
        assert {"local-cmd_line", "local-python", "local-torch"} <= names

    def test_a_name_that_says_the_pair_spares_importing_the_others(
        self, install: Callable[..., None], user: UserCode
    ) -> None:
        user.write("heavy.py", "raise AssertionError('imported')\n")
        install(moon_rover="rover:MoonRover", heavy="heavy:Plugin")
        find()
        assert "heavy" not in sys.modules

    def test_a_name_that_says_another_pair_does_not_mislead(
        self, install: Callable[..., None], user: UserCode
    ) -> None:
        user.write("mars.py", GOOD.replace('"moon"', '"mars"'))
        install(moon_rover="mars:MoonRover", other="rover:MoonRover")
        plugin, source = find()
        assert type(plugin).__module__ == "rover"
        assert source.entry_point == "other"

    def test_two_packages_for_one_pair_are_refused(
        self, install: Callable[..., None], user: UserCode
    ) -> None:
        user.write("copy_of_rover.py", GOOD)
        install("first", one="rover:MoonRover")
        install("second", two="copy_of_rover:MoonRover")
        error = refused(find)
        assert error.message == (
            "several installed packages bring a job plugin for moon/rover: rover:MoonRover of "
            "first and copy_of_rover:MoonRover of second"
        )
        assert error.hint == "name the one you mean in the job: plugin: rover::MoonRover"

    def test_two_packages_with_one_name_for_it_are_refused(
        self, install: Callable[..., None], user: UserCode
    ) -> None:
        user.write("copy_of_rover.py", GOOD)
        install("first", moon_rover="rover:MoonRover")
        install("second", moon_rover="copy_of_rover:MoonRover")
        assert "several installed packages" in refused(find).message

    def test_a_bad_one_does_not_break_the_others(
        self, install: Callable[..., None], user: UserCode
    ) -> None:
        user.write("broken.py", "import sys\nsys.exit(4)\n")
        install(
            a="broken:Plugin", good="rover:MoonRover", x="nowhere:Plugin", y="rover:Moon", z="rover"
        )
        found = others(installed_plugins())
        assert sorted(found) == ["a", "good", "x", "y", "z"]
        assert [name for name, each in found.items() if each.pair] == ["good"]
        errors = {name: each.error.message for name, each in found.items() if each.error}
        assert "calls sys.exit(4) when it is imported" in errors["a"]
        assert "there is no module 'nowhere'" in errors["x"]
        assert "must derive from AbstractJobPlugin" in errors["y"]
        assert "names a module and no object in it" in errors["z"]
        assert find()[1].entry_point == "good"

    def test_the_one_that_was_meant_says_why_it_is_bad(
        self, install: Callable[..., None], user: UserCode
    ) -> None:
        user.write("broken.py", "1 / 0\n")
        install(moon_rover="broken:Plugin")
        error = refused(find)
        assert error.message.startswith("job plugin 'moon-rover' (broken:Plugin of rovers): ")
        assert "ZeroDivisionError" in error.message

    def test_an_unknown_pair_names_those_that_could_not_be_loaded(
        self, install: Callable[..., None]
    ) -> None:
        install(good="rover:MoonRover", bad="nowhere:Plugin")
        error = refused(lambda: find("moon", "rovre"))
        assert error.message.startswith("there is no engine 'rovre'; there are plugins for: ")
        assert "moon/rover" in error.message
        assert "not loaded, as `dlrover-job plugins list` explains: bad" in error.message
        assert "bad" in error.message.rpartition(": ")[2].split(", ")
        assert error.hint == "did you mean moon/rover?"

    def test_one_that_was_uninstalled_is_said_to_be(self, user: UserCode) -> None:
        error = refused(lambda: load_plugin(PluginSource("moon-rover", None)))
        assert f"there is no entry point of that name in the group '{GROUP}'" in error.message

    def test_looking_for_plugins_does_not_load_torch(self) -> None:
        program = "from dlrover_cli.jobs.plugins import *; import sys; installed_plugins()"
        subprocess.run(
            [sys.executable, "-c", f"{program}; sys.exit('torch' in sys.modules)"], check=True
        )


# ---- modules that a job file may name, and what is said about them ----------------------------

BAD: dict[str, tuple[str, str, str]] = {
    "one colon": ("", "bad:Plugin", "must be joined by '::'"),
    "a file": ("", "bad.py::Plugin", "a file and not a module"),
    "no class": ("", "bad::", "there is no class after the '::'"),
    "no such module": ("", "badd::Plugin", "there is no module 'badd'"),
    "no such class": ("class Plug: ...", "bad::Plugin", "there is no 'Plugin'"),
    "not Python": ("def f(:", "bad::Plugin", "bad.py:1 is not valid Python"),
    "needs what is not there": ("import no_such_thing", "bad::Plugin", "module 'no_such_thing'"),
    "raises": ("1 / 0", "bad::Plugin", "raised ZeroDivisionError: division by zero (at "),
    "exits": ("raise SystemExit", "bad::Plugin", "calls sys.exit(None) when it is imported"),
    "raises in the end": ("raise GeneratorExit", "bad::Plugin", "raised GeneratorExit"),
    "a number": ("Plugin = 3", "bad::Plugin", "it is of type int and not a job plugin"),
    "a function": ("def Plugin(): ...", "bad::Plugin", "it is a function and not a job plugin"),
    "no base": ("class Plugin: ...", "bad::Plugin", "must derive from AbstractJobPlugin"),
    "abstract": (
        "from rover import *\nclass Plugin(AbstractJobPlugin): ...",
        "bad::Plugin",
        "it does not define generate, generate_job_resource, submit_job",
    ),
    "a constructor that raises": (
        "from rover import *\nclass Plugin(MoonRover):\n  def __init__(self): open('/no/file')",
        "bad::Plugin",
        "its constructor raised FileNotFoundError",
    ),
    "registered twice by itself": (
        """
        from rover import *
        from dlrover_cli.contracts import *
        register_job_plugin(MoonRover())
        register_job_plugin(MoonRover())
        """,
        "bad::MoonRover",
        "a job plugin for moon/rover is registered already",
    ),
    "a name that is none": (
        """
        from rover import *
        class Mars(Moon):
            platform = staticmethod(lambda: "red planet")
        class Plugin(MoonRover):
            platform = lambda self: Mars
        """,
        "bad::Plugin",
        "Mars.platform() is 'red planet': a name has letters",
    ),
}


@pytest.mark.parametrize("source, reference, why", BAD.values(), ids=BAD.keys())
def test_a_bad_reference_is_one_clear_error(
    source: str, reference: str, why: str, user: UserCode
) -> None:
    user.write("bad.py", textwrap.dedent(source) + "\n")
    error = refused(lambda: find(reference=reference, root=user.root))
    assert error.message.startswith(f"job plugin '{reference}': ")
    assert why in error.message
    assert registered_plugins() == {}
