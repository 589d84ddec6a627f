"""How a script is started, and where plugins are looked for."""

import sys
from pathlib import Path

import pytest
from torch.distributed.run import config_from_args, parse_args

from dlrover_cli.cli.run import read_settings
from dlrover_cli.errors import ConfigError
from dlrover_cli.launch.script import check_script, entry_point_of, plugin_roots


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    "line", ["train.py --lr 1", "-m pkg.train -h", "--no-python ./run.sh a", "--run-path /a.py x"]
)
@pytest.mark.parametrize("python", [None, "/other/python"])
def test_the_command_is_torchruns(
    line: str, python: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if python is not None:
        monkeypatch.setenv("PYTHON_EXEC", python)
    environ = {} if python is None else {"PYTHON_EXEC": python}
    _, command, arguments = config_from_args(parse_args(line.split()))
    assert entry_point_of(read_settings(line.split()), environ) == (command, tuple(arguments))


def test_plugins_are_looked_for_here_and_beside_the_script(tmp_path: Path) -> None:
    assert plugin_roots(read_settings(["sub/train.py"])) == (tmp_path, tmp_path / "sub")
    assert plugin_roots(read_settings(["train.py"])) == (tmp_path,)
    assert plugin_roots(read_settings(["-m", "pkg.train"])) == (tmp_path,)


class TestModules:
    def check(self, name: str) -> None:
        check_script(read_settings(["-m", name]), {})

    def refused(self, name: str) -> ConfigError:
        with pytest.raises(ConfigError) as caught:
            self.check(name)
        assert caught.value.hint
        return caught.value

    @pytest.mark.parametrize(
        "name", ["timeit", "json.tool", "zipimport", "torch.utils.collect_env"]
    )
    def test_installed_ones_are_there(self, name: str) -> None:
        self.check(name)

    def test_a_package_is_not_run_to_look_into_it(self, tmp_path: Path) -> None:
        package = tmp_path / "pkg"
        (package / "inner").mkdir(parents=True)
        (package / "__init__.py").write_text("raise SystemExit\n")
        (package / "train.py").touch()
        (package / "inner" / "deep.py").touch()
        self.check("pkg.train")
        self.check("pkg.inner.deep")
        assert "pkg.train?" in (self.refused("pkg.trainn").hint or "")
        assert "no module 'x' in 'pkg.inner'" in self.refused("pkg.inner.x").message
        assert "without a __main__" in self.refused("pkg.inner").message

    @pytest.mark.parametrize("code", ["__path__.append('x')", "import sys; sys.modules", ""])
    def test_packages_that_make_their_own_modules_are_left_to_the_worker(
        self, tmp_path: Path, code: str
    ) -> None:
        (tmp_path / "dynamic").mkdir()
        (tmp_path / "dynamic" / "__init__.py").write_text(code)
        if code:
            self.check("dynamic.made")
        else:
            self.refused("dynamic.made")

    def test_every_importer_is_asked(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """As for a package in an editable installation."""
        from importlib.machinery import ModuleSpec

        class Finder:
            @staticmethod
            def find_spec(name: str, path: object, target: object = None) -> ModuleSpec | None:
                return ModuleSpec(name, None) if name == "edited" else None

        self.refused("edited")
        monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder])
        self.check("edited")

    def test_another_interpreter_may_have_other_modules(self) -> None:
        check_script(read_settings(["-m", "nowhere"]), {"PYTHON_EXEC": "/other/python"})
