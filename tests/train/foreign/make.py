"""Makes the checkpoints beside this file with the libraries whose layouts they have, on two ranks.

    python -m venv made && made/bin/pip install torch==2.11 megatron-core==0.16.1 deepspeed==0.19.8
    DS_ACCELERATOR=cpu made/bin/torchrun --nproc-per-node 2 tests/train/foreign/make.py megatron zero-2 zero-3

Beside each lies `expected.json`: the digest of every whole tensor, as the model had it in memory when it was saved.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

HERE = Path(__file__).parent


def model() -> torch.nn.Module:
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(5, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1))


def digest(tensor: torch.Tensor) -> str:
    return hashlib.sha256(tensor.detach().contiguous().numpy().tobytes()).hexdigest()[:16]


def expect(name: str, tensors: dict[str, torch.Tensor]) -> None:
    if dist.get_rank() == 0:
        told = {key: [str(each.dtype), list(each.shape), digest(each)] for key, each in tensors.items()}
        (HERE / name / "expected.json").write_text(json.dumps(told, indent=1) + "\n")
    dist.barrier()


def begin(name: str) -> str:
    if dist.get_rank() == 0:
        shutil.rmtree(HERE / name, ignore_errors=True)
        (HERE / name).mkdir()
    dist.barrier()
    return str(HERE / name)


def megatron(name: str) -> None:
    """Weights and moments cut by rows over the ranks, a replicated bias, an object of each rank, common values."""
    from megatron.core import dist_checkpointing
    from megatron.core.dist_checkpointing import ShardedObject, ShardedTensor

    if not torch.cuda.is_available():
        # It waits for the GPU's copies, and counts failures there. Here is none to wait for.
        torch.cuda.synchronize = lambda *_: None
        torch.cuda.current_device = lambda: torch.device("cpu")
    rank, folder = dist.get_rank(), begin(name)
    torch.manual_seed(2)
    whole = {"decoder.weight": torch.randn(4, 3), "optimizer.state.exp_avg.decoder.weight": torch.randn(4, 3)}
    bias = torch.randn(3, dtype=torch.bfloat16)
    sharded: dict[str, Any] = {
        key: ShardedTensor.from_rank_offsets(key, each[2 * rank : 2 * rank + 2].clone(), (0, rank, 2))
        for key, each in whole.items()
    }
    sharded["decoder.bias"] = ShardedTensor.from_rank_offsets("decoder.bias", bias, replica_id=rank)
    sharded["rng"] = ShardedObject("rng", {"seed": rank}, (2,), (rank,))
    dist_checkpointing.save({**sharded, "iteration": 7}, folder)
    dist.barrier()
    expect(name, whole)


def zero(name: str, stage: int) -> None:
    import deepspeed

    folder, net = begin(name), model()
    settings = {
        "train_batch_size": 4,
        "optimizer": {"type": "Adam", "params": {"lr": 0.01, "torch_adam": True}},
        "zero_optimization": {"stage": stage},
        "zero_allow_untested_optimizer": True,
    }
    engine, _, _, _ = deepspeed.initialize(model=net, model_parameters=net.parameters(), config=settings)
    for step in range(3):
        torch.manual_seed(10 * step + dist.get_rank())
        loss = engine(torch.randn(2, 5)).square().mean()
        engine.backward(loss)
        engine.step()
    engine.save_checkpoint(folder, tag="global_step3")
    dist.barrier()
    if dist.get_rank() == 0:
        for script in Path(folder).glob("*.py"):
            # Its own program for reading it is put beside every checkpoint.
            script.unlink()
    tensors: dict[str, torch.Tensor] = {}
    from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state

    for key, parameter in engine.module.named_parameters():
        tensors[f"model.{key}"] = safe_get_full_fp32_param(parameter)
        for moment in ("exp_avg", "exp_avg_sq"):
            tensors[f"optimizer.state.{key}.{moment}"] = safe_get_full_optimizer_state(parameter, moment)
    expect(name, tensors)


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for wanted in sys.argv[1:]:
        if wanted == "megatron":
            megatron(wanted)
        else:
            zero(wanted, int(wanted.removeprefix("zero-")))
    dist.destroy_process_group()
    os._exit(0)
