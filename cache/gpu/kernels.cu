/*
 * kernels.cu - the one kernel: a thread copies its share of a launch's units; all else is in index.h.
 *
 * The launch travels as the kernel's argument (__grid_constant__: it is read where it lies), so that no
 * list has to be uploaded before it. 512 threads of at most 64 registers: two blocks fit any
 * multiprocessor beside others' work.
 */
#include "gpu/index.h"

extern "C" __global__ void __launch_bounds__(512, 2)
	kvt_gpu_move(const __grid_constant__ struct kvt_gpu_launch launch)
{
	kvt_gpu_thread(&launch, blockIdx.x * blockDim.x + threadIdx.x, gridDim.x * blockDim.x);
}
