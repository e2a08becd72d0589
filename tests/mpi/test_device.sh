#!/bin/sh
# tests/mpi/test_device.sh -- plans on an asynchronous device compute what they do on the host, bit by
# bit (mpi_device.c): no wait is missing, and nothing of the device's memory is touched by the host.
# A sixth of the matrix' covering plans (make test-matrix: DPX_DEVICE_ALL=1, all of them).
# Runs from the root of the tree; $B is where it was built.
# shellcheck source=tests/check.sh
. tests/check.sh
# shellcheck source=tests/mpi/matrix.sh
. tests/mpi/matrix.sh
list_plans mpi_matrix some
for n in 1 2 3; do
    run_all 400 'on a device: ' $n mpi_device "$dir/list"
done
finish
