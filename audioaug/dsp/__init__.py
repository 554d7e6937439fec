"""Pure batched torch functions on audio, without randomness: filters and FFTs, levels, noise from keys, fades."""
