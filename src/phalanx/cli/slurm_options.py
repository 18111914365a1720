"""The options of sbatch and srun that are called otherwise here."""

from __future__ import annotations

TIME = "`--max-run 3h`, or `--max-run 03:00:00`; a number alone is seconds"
TASKS = "`--tasks N` equal tasks, which are started together; `--gpus` is of each task"
GPUS = "`--gpus N` for each task, with `--gpu-type TYPE` for a kind"
QUEUE = "`--queue QUEUE`; `phalanx queues` lists them"
NAME = "`--name NAME`"
CPUS = "`--cpus N` for each task"
MEMORY = "`--memory-gb N` for each task"
LOGS = "not needed: `phalanx logs ID` shows what a job prints"
WORKDIR = "`--workdir DIR`"
NODE = "`--node NODE` for one node, `--node-selector KEY=VALUE` for several"
LABELS = "`--node-selector KEY=VALUE`"
PRIORITY = "`--priority N`: higher goes first, where the policy uses it"
ALERTS = "not an option of a job: an operator has alerts sent, with `phalanx up --alerts FILE`"

HERE = {
    **dict.fromkeys(("--time", "-t", "--time-min"), TIME),
    **dict.fromkeys(("--ntasks", "-n"), TASKS),
    **dict.fromkeys(("--nodes", "-N", "--ntasks-per-node"), f"{TASKS}, and a task of all GPUs of a node has it alone"),
    **dict.fromkeys(("--gres", "-G", "--gpus-per-task", "--gpus-per-node", "--tres-per-task"), GPUS),
    **dict.fromkeys(("--partition", "-p", "--account", "-A", "--qos", "-q"), QUEUE),
    **dict.fromkeys(("--job-name", "-J"), NAME),
    **dict.fromkeys(("--cpus-per-task", "-c", "--cpus-per-gpu"), CPUS),
    **dict.fromkeys(("--mem", "--mem-per-cpu", "--mem-per-gpu"), MEMORY),
    **dict.fromkeys(("--error", "-e"), LOGS),
    **dict.fromkeys(("--chdir", "-D"), WORKDIR),
    **dict.fromkeys(("--nodelist", "-w"), NODE),
    **dict.fromkeys(("--constraint", "-C"), LABELS),
    **dict.fromkeys(("--nice",), PRIORITY),
    **dict.fromkeys(("--mail-type", "--mail-user"), ALERTS),
    "-x": "`--exclude NODE`, also several with commas between",
    "--export": "`--env NAME=VALUE`, and `--inherit-env` for PATH and the virtual environment",
    "--wrap": "`-- COMMAND` behind all options",
    "--requeue": "`--retries N`",
    "--hold": "`phalanx hold ID` after `phalanx submit --begin +5m`",
    "-H": "`phalanx hold ID` after `phalanx submit --begin +5m`",
    "-d": "`--dependency KIND:ID`",
    "-a": "`--array INDICES`",
    "-b": "`--begin TIME`",
    "--container-image": "`--image IMAGE`",
}
"""What to write here instead, by the option of Slurm."""


def hint(option: str) -> str:
    """What an option of Slurm is called here; nothing for one that Slurm does not have."""
    here = HERE.get(option)
    return f"Slurm's {option} is here: {here}." if here else ""
