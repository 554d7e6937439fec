"""Audio from disk: find, decode and resample files; banks of noise and impulse responses; folders as datasets."""
