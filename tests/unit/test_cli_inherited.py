"""What a job takes over from the shell that it is submitted from."""

from __future__ import annotations

from phalanx.cli.inherited import INHERITED, inherited

SHELL = {
    "PATH": "/home/ada/venv/bin:/usr/bin",
    "VIRTUAL_ENV": "/home/ada/venv",
    "CONDA_PREFIX": "/opt/conda/envs/llm",
    "CONDA_DEFAULT_ENV": "llm",
    "PYTHONPATH": "src",
    "LD_LIBRARY_PATH": "",
    "HOME": "/home/ada",
    "USER": "ada",
    "SSH_AUTH_SOCK": "/tmp/agent",
    "HF_TOKEN": "hf_secret",
    "WANDB_API_KEY": "key",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "GOOGLE_APPLICATION_CREDENTIALS": "/home/ada/key.json",
    "PHALANX_TOKEN": "token",
    "GITHUB_TOKEN": "token",
}


def test_the_python_of_the_shell_is_taken_over_and_nothing_that_could_be_secret() -> None:
    assert inherited(SHELL) == {
        "PATH": "/home/ada/venv/bin:/usr/bin",
        "VIRTUAL_ENV": "/home/ada/venv",
        "CONDA_PREFIX": "/opt/conda/envs/llm",
        "CONDA_DEFAULT_ENV": "llm",
        "PYTHONPATH": "src",
    }


def test_no_name_of_the_list_is_that_of_a_secret() -> None:
    words = ("TOKEN", "SECRET", "KEY", "PASS", "CREDENTIAL", "AUTH")
    assert not [name for name in INHERITED if any(word in name for word in words)]


def test_a_value_that_no_job_file_could_hold_is_left_out() -> None:
    assert inherited({"PATH": "/bin\n/usr/bin", "VIRTUAL_ENV": "x" * 40_000, "TZ": "UTC"}) == {"TZ": "UTC"}
