"""The declaration: distributions (params), counter-based draws, the op with its faces, the chain of ops.

And where a chain puts time: ``Timeline``, ``follow``.
"""

from audioaug.core.chain import Chain, Node, as_chain
from audioaug.core.draws import Draws
from audioaug.core.follow import Origin, follow
from audioaug.core.op import (
    CUSTOM_OPS,
    REGISTRY,
    BatchInfo,
    Contract,
    DeviceBatchInfo,
    Op,
    Params,
    TorchAudiomentationsOp,
)
from audioaug.core.params import FRACTION, NOISE_KEY, Choice, Distribution, MelUniform, Uniform, UniformInt
from audioaug.core.timeline import Timeline

__all__ = [
    "FRACTION",
    "NOISE_KEY",
    "REGISTRY",
    "CUSTOM_OPS",
    "Chain",
    "Choice",
    "Contract",
    "DeviceBatchInfo",
    "Distribution",
    "Draws",
    "BatchInfo",
    "MelUniform",
    "Node",
    "Op",
    "Origin",
    "Params",
    "TorchAudiomentationsOp",
    "Timeline",
    "Uniform",
    "UniformInt",
    "as_chain",
    "follow",
]
