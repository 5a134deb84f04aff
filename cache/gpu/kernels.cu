/*
 * kernels.cu - the kernels: a thread copies its share of a launch's units, or turns its share of keys; index.h and
 * turn.h have the rest.
 *
 * The launch is the kernel's argument (__grid_constant__: read in place), so that no list has to be uploaded first. 512
 * threads of at most 64 registers: two blocks fit any multiprocessor beside others' work.
 */
#include "gpu/turn.h"

static_assert(sizeof(struct kvt_gpu_launch) <= 4096 && sizeof(struct kvt_gpu_turning) <= 4096, "what all devices take");

extern "C" __global__ void __launch_bounds__(512, 2)
	kvt_gpu_move(const __grid_constant__ struct kvt_gpu_launch launch)
{
	kvt_gpu_thread(&launch, blockIdx.x * blockDim.x + threadIdx.x, gridDim.x * blockDim.x);
}

extern "C" __global__ void __launch_bounds__(512, 2)
	kvt_gpu_turn(const __grid_constant__ struct kvt_gpu_turning turning)
{
	kvt_gpu_turn_thread(&turning, blockIdx.x * blockDim.x + threadIdx.x, gridDim.x * blockDim.x);
}
