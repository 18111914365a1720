"""What a rank finds in its environment: torchrun's variables, and those of the launcher."""

from __future__ import annotations

from phalanx.train.launch.epoch import Epoch


def of_rank(epoch: Epoch, name: str, local_rank: int, run_id: str, max_restarts: int) -> dict[str, str]:
    """The variables of one rank of an agent."""
    place = epoch.names.index(name)
    me, first = epoch.members[place], epoch.members[0]
    rank, world_size = epoch.first_rank(name) + local_rank, epoch.world_size
    values: dict[str, object] = {
        "MASTER_ADDR": first.host,
        "MASTER_PORT": first.master_port,
        "RANK": rank,
        "LOCAL_RANK": local_rank,
        "WORLD_SIZE": world_size,
        "LOCAL_WORLD_SIZE": me.slots,
        "GROUP_RANK": place,
        "GROUP_WORLD_SIZE": len(epoch.members),
        "ROLE_NAME": "default",
        "ROLE_RANK": rank,
        "ROLE_WORLD_SIZE": world_size,
        "TORCHELASTIC_RESTART_COUNT": epoch.restarts,
        "TORCHELASTIC_MAX_RESTARTS": max_restarts,
        "TORCHELASTIC_RUN_ID": run_id,
        "TORCHELASTIC_USE_AGENT_STORE": False,
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": 1,
        "PHALANX_EPOCH": epoch.number,
    }
    return {key: str(value) for key, value in values.items()}
