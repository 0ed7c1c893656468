# Compiles the kernels. Training works without them, so nothing fails here.
end_with_the_launcher
hold
lines=$("$python" -m cifar10.kernels.build 2>&1) && finish "are compiled"
why=$(echo "$lines" | grep -m1 'are not available' || echo "$lines" | tail -n 1)
finish "left out: $why; training takes longer without"
