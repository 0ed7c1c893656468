"""--autotune: towers and threads of a CPU, chosen by measuring real training steps."""
