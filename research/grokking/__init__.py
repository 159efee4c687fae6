"""What the probe fourier measures in public files of modular arithmetic."""
