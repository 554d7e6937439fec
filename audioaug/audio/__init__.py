"""Audio from disk: files (find, decode, convert), banks of noise and impulse responses, folders as datasets."""
