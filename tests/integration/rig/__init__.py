"""What the integration tests are built from.

worker   a scriptable worker: exact bytes in, exact bytes out
client   an HTTP client on a raw socket that hides nothing
router   a kvway process with a generated configuration
sim      a kvsim process
tls      certificates, a client and a worker behind TLS
wait     waiting for a condition, free ports

Everything runs on loopback and on ports that the kernel chose, so that any number of test runs
may share a machine. Standard library only.
"""
