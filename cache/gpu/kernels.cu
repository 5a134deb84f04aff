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
	/* An argument is constant memory, which answers the threads of a warp one by one where they ask for different words. */
	__shared__ struct kvt_gpu_angles angles;

	for (uint32_t i = threadIdx.x; i < KVT_GPU_PAIRS; i += blockDim.x) {
		angles.cosine[i] = turning.angles.cosine[i];
		angles.sine[i] = turning.angles.sine[i];
	}
	__syncthreads();
	kvt_gpu_turn_thread(&turning, &angles, blockIdx.x * blockDim.x + threadIdx.x, gridDim.x * blockDim.x);
}
