"""The declaration: distributions, counter-based draws, the op with its faces, the chain of ops.

And where a chain puts time: ``Timeline``, ``follow``.
"""

from audioaug.core.batch import BatchInfo, DeviceBatchInfo
from audioaug.core.chain import Chain, Node, as_chain
from audioaug.core.contract import Capabilities, Contract
from audioaug.core.distributions import FRACTION, NOISE_KEY, Choice, Distribution, MelUniform, Uniform, UniformInt
from audioaug.core.draws import Draws
from audioaug.core.follow import Origin, follow
from audioaug.core.keys import Key, key_number, key_numbers, key_of
from audioaug.core.op import (
    CUSTOM_OPS,
    REGISTRY,
    Container,
    Feature,
    Linear,
    NumpyReference,
    Op,
    TorchAudiomentationsOp,
    always,
    arguments,
    is_ours,
    leaves,
    why_not_in_worker,
    why_not_on_device,
)
from audioaug.core.params import (
    DRAWN_INTS,
    FLOATS,
    HOST_ONLY,
    INTS,
    LENGTHS,
    MEASURED,
    MEASURED_LENGTHS,
    STATIC,
    ListType,
    OptionalType,
    Params,
    ParamType,
)
from audioaug.core.timeline import Timeline

__all__ = [
    "CUSTOM_OPS",
    "DRAWN_INTS",
    "FLOATS",
    "FRACTION",
    "HOST_ONLY",
    "INTS",
    "LENGTHS",
    "MEASURED",
    "MEASURED_LENGTHS",
    "NOISE_KEY",
    "REGISTRY",
    "STATIC",
    "BatchInfo",
    "Capabilities",
    "Chain",
    "Choice",
    "Container",
    "Contract",
    "DeviceBatchInfo",
    "Distribution",
    "Draws",
    "Feature",
    "Key",
    "Linear",
    "ListType",
    "MelUniform",
    "Node",
    "NumpyReference",
    "Op",
    "OptionalType",
    "Origin",
    "ParamType",
    "Params",
    "Timeline",
    "TorchAudiomentationsOp",
    "Uniform",
    "UniformInt",
    "always",
    "arguments",
    "as_chain",
    "follow",
    "key_number",
    "key_numbers",
    "key_of",
    "is_ours",
    "leaves",
    "why_not_in_worker",
    "why_not_on_device",
]
