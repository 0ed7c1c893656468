"""Learning rates, update rules and averages of weights; the registry of optimizers."""

from cifar10.config.registry import Registry
from cifar10.optim.base import Optimizer
from cifar10.optim.momentum import Adam, Momentum
from cifar10.optim.muon import Muon

REGISTRY: Registry[Optimizer] = Registry("optimizer")
NAMES, register, unregister = REGISTRY.names, REGISTRY.register, REGISTRY.unregister
find = REGISTRY.find

for _optimizer in (Momentum("momentum", False), Momentum("nesterov", True), Adam(), Muon()):
    register(_optimizer)
