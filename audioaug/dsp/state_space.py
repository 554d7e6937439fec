"""Cascades of second-order sections, a row each, as matrix products: a block of samples at a time.

A section is a state-variable filter with trapezoidal integrators (V. Zavalishin, "The Art of VA Filter Design", ch. 4),
whose two states keep their digits in float32 however low its frequency. With the states s and the input x it is, and so
is the cascade, with two states a section,

    s' = A s + b x,  y = c s + d x

Over a block of L samples x, at whose start the states are s, that is

    y = T x + O s,  s' = A^L s + B x

where T is the impulse response from each sample on, O what the states play, and B what each sample leaves behind. The
states at the start of every block are a scan: two blocks are one of twice the length, until one is left.

Matrices are found in float64; what they are multiplied by stays float32.

Shapes: R rows (of one channel), T samples, K blocks, L samples of a block, S sections, N = 2 S states.
"""

import torch

BLOCK_BITS = 6
BLOCK = 2**BLOCK_BITS
"""Samples: in longer blocks T is more work, in shorter ones the scan."""


def products_are_exact(device: torch.device) -> bool:
    """Return whether torch multiplies matrices of float32 as such there: it can be told to round them to fewer bits."""
    told = getattr(getattr(torch.backends.mkldnn, "matmul", None), "fp32_precision", "ieee")  # since torch 2.9
    return device.type == "cpu" and told in ("none", "ieee") and torch.get_float32_matmul_precision() == "highest"


def filter_in_blocks(x_RT: torch.Tensor, sections_RS5: torch.Tensor) -> torch.Tensor:
    """Filter each row with its own cascade, which starts in the steady state of the row's first sample.

    Args:
        x_RT: float32.
        sections_RS5: g and k of each section, and the factors of its low-pass, band-pass and high-pass.
    """
    rows, samples = x_RT.shape
    with torch.autocast(x_RT.device.type, enabled=False):
        missing = -samples % BLOCK
        x_RKL = (torch.nn.functional.pad(x_RT, (0, missing)) if missing else x_RT).reshape(rows, -1, BLOCK)
        transition_RNN, input_RN1, output_R1N, through_R11, steady_RN = _cascades(sections_RS5.double())
        left_RLN, response_RLL, played_RNL, power_RNN = _of_a_block(transition_RNN, input_RN1, output_R1N, through_R11)
        before_R1N = steady_RN.mul(x_RT[:, :1])[:, None].to(x_RT.dtype)
        left_RKN = x_RKL @ left_RLN.to(x_RT.dtype)
        state_RKN = _scan(torch.cat([before_R1N, left_RKN[:, :-1]], dim=1), power_RNN)
        y_RKL = x_RKL @ response_RLL.to(x_RT.dtype)
        y_RKL.baddbmm_(state_RKN, played_RNL.to(x_RT.dtype))
    return y_RKL.view(rows, -1)[:, :samples]


def _cascades(sections_RS5: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return A (R, N, N), b (R, N, 1), c (R, 1, N), d (R, 1, 1), and the states that an endless 1 leads to, (R, N)."""
    rows, count, _ = sections_RS5.shape
    g, k, low, band, high = sections_RS5.unbind(-1)
    a1 = 1 / (1 + g * (g + k))
    a2, a3 = g * a1, g * g * a1
    own_RS22 = torch.stack([2 * a1 - 1, -2 * a2, 2 * a2, 1 - 2 * a3], dim=-1).view(rows, count, 2, 2)
    into_RS2 = torch.stack([2 * a2, 2 * a3], dim=-1)
    band, low = band - high * k, low - high  # the high-pass is the input less the other two
    from_RS2 = torch.stack([band * a1 + low * a2, low * (1 - a3) - band * a2], dim=-1)
    gain_RS = high + band * a2 + low * a3  # from a section's input to its output, past its states: always above 0
    ones_R1 = torch.ones_like(gain_RS[:, :1])
    gains_RS = torch.cat([ones_R1, gain_RS.cumprod(1)], dim=1)  # of all sections before each one, and of all
    before_RS, behind_RS, all_R1 = gains_RS[:, :-1], gains_RS[:, 1:], gains_RS[:, -1:]
    between_RSS = (before_RS[:, :, None] / behind_RS[:, None]).tril(-1)
    transition_RS2S2 = into_RS2[:, :, :, None, None] * from_RS2[:, None, None] * between_RSS[:, :, None, :, None]
    transition_RS2S2.diagonal(dim1=1, dim2=3).copy_(own_RS22.permute(0, 2, 3, 1))
    reached_RS = torch.cat([ones_R1, sections_RS5[:, :-1, 2].cumprod(1)], dim=1)
    return (
        transition_RS2S2.reshape(rows, 2 * count, 2 * count),
        (into_RS2 * before_RS[..., None]).view(rows, -1, 1),
        (from_RS2 * (all_R1 / behind_RS)[..., None]).view(rows, 1, -1),
        all_R1[:, None],
        torch.stack([torch.zeros_like(reached_RS), reached_RS], dim=-1).view(rows, -1),
    )


def _of_a_block(
    transition_RNN: torch.Tensor, input_RN1: torch.Tensor, output_R1N: torch.Tensor, through_R11: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """Return B (R, L, N), T (R, L, L) and O (R, N, L), each to be multiplied from the right, and A^L (R, N, N)."""
    left_RNL, played_RLN, power_RNN = input_RN1, output_R1N, transition_RNN
    for _ in range(BLOCK_BITS):
        left_RNL = torch.cat([left_RNL, power_RNN @ left_RNL], dim=2)
        played_RLN = torch.cat([played_RLN, played_RLN @ power_RNN], dim=1)
        power_RNN = power_RNN @ power_RNN
    impulse_RL = torch.cat([through_R11, played_RLN[:, :-1] @ input_RN1], dim=1)[..., 0]
    response_RLL = torch.nn.functional.pad(impulse_RL, (BLOCK - 1, 0)).unfold(1, BLOCK, 1).flip(1)
    return left_RNL.flip(2).transpose(1, 2), response_RLL, played_RLN.transpose(1, 2), power_RNN


def _scan(left_RKN: torch.Tensor, power_RNN: torch.Tensor) -> torch.Tensor:
    """Return the states at the start of each block, of what each leaves behind (the first: what was there before)."""
    blocks = left_RKN.shape[1]
    if blocks == 1:
        return left_RKN
    passed_on_RNN = power_RNN.transpose(1, 2).to(left_RKN.dtype)
    even, odd = left_RKN[:, ::2], left_RKN[:, 1::2]
    odd = _scan(odd + even[:, : odd.shape[1]] @ passed_on_RNN, power_RNN @ power_RNN)
    even = torch.cat([even[:, :1], even[:, 1:] + odd[:, : even.shape[1] - 1] @ passed_on_RNN], dim=1)
    if even.shape[1] > odd.shape[1]:
        odd = torch.nn.functional.pad(odd, (0, 0, 0, 1))
    return torch.stack([even, odd], dim=2).flatten(1, 2)[:, :blocks]
