"""Learning rates, update rules and averages of weights; the registry of optimizers."""

from cifar10.config.registry import Registry
from cifar10.optim import adam, momentum, muon
from cifar10.optim.base import Optimizer

REGISTRY: Registry[Optimizer] = Registry("optimizer")
NAMES, register, unregister = REGISTRY.names, REGISTRY.register, REGISTRY.unregister
find = REGISTRY.find

for _optimizer in (momentum.MOMENTUM, momentum.NESTEROV, adam.ADAM, muon.MUON):
    register(_optimizer)
