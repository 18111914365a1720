"""A small elastic training as a rank's program, whose every step is written down."""

from __future__ import annotations

from typing import Any

from launching import NOTES, Launch, Launched

from phalanx.bench.launch import warm

TRAINING = (
    NOTES
    + """
import hashlib, torch
from phalanx.train.data import Ledger, Member, Shuffled
from phalanx.train.elastic import Elastic

class Momentum:
    # torch's own optimizers take seconds to import what compiles them.

    def __init__(self, parameters):
        self.parameters = list(parameters)
        self.moments = [torch.zeros_like(each) for each in self.parameters]

    def zero_grad(self):
        for each in self.parameters:
            each.grad = None

    def step(self):
        with torch.no_grad():
            for each, moment in zip(self.parameters, self.moments):
                moment.mul_(0.9).add_(each.grad)
                each.sub_(moment, alpha=1e-2)

    def state_dict(self):
        return {"moments": self.moments}

    def load_state_dict(self, state):
        for moment, loaded in zip(self.moments, state["moments"]):
            moment.copy_(loaded)

torch.set_num_threads(1)
torch.manual_seed(int(os.environ["RANK"]))
model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
optimizer = Momentum(model.parameters())
ledger = Ledger(Shuffled(60, seed=3), global_batch=12)
samples = torch.randn(60, 6, generator=torch.Generator().manual_seed(5))
elastic = Elastic({"model": model, "optimizer": optimizer, "data": ledger}, folder=os.environ["OUT"] + ".state",
                  timeout_s=float(os.environ.get("TIMEOUT_S", "60")))
note("began")

def at(step):
    pass

def before_vote(step):
    pass

def until(condition):
    while not condition():
        time.sleep(0.01)

def notes(event):
    return [each for each in map(json.loads, open(out)) if each["event"] == event]

def train(steps, before_digest=lambda: None):
    for step in elastic.steps(steps):
        with step:
            at(step.number)
            me = Member.of_this_job()
            optimizer.zero_grad()
            mine = [ledger.order.sample(ledger.epoch, each) for each in ledger.batch[me.rank :: me.world_size]]
            (model(samples[mine]).square().sum() * me.world_size / len(ledger.batch)).backward()
            step.average(model.parameters())
            before_vote(step.number)
            step.commit()
            note("committed", step=step.number, samples=mine, data_epoch=ledger.epoch)
            optimizer.step()
            ledger.commit()
    before_digest()
    content = b"".join(each.detach().numpy().tobytes() for each in model.parameters())
    note("ended", completed=elastic.completed, leaving=elastic.is_leaving, digest=hashlib.sha256(content).hexdigest())
"""
)


FAULTS = """
tried = []
def is_first(victim):
    is_it = int(os.environ["RANK"]) == victim and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and not tried
    tried.append(1)
    return is_it
def kill_once(victim):
    if is_first(victim):
        os.kill(os.getpid(), signal.SIGKILL)
def fail_once(victim):
    if is_first(victim):
        raise RuntimeError("bad luck")
"""
"""What has a rank fail once in a test."""


class Trained(Launched):
    """A launcher of ranks that train by `elastic`."""

    prelude = TRAINING

    def interpreter(self) -> str:
        return warm.python()


def by_step(launch: Launch) -> dict[int, list[dict[str, Any]]]:
    """The ranks' commits of each step."""
    found: dict[int, list[dict[str, Any]]] = {}
    for each in launch.notes("committed"):
        found.setdefault(each["step"], []).append(each)
    return found
