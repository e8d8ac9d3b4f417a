"""Native CPU kernels."""
