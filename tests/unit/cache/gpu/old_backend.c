/*
 * old_backend.c - a libkvtier_cuda.so of another version.
 */
#include <stddef.h>

#include "gpu/gpu.h"

const struct kvt_gpu_backend *kvt_gpu_cuda_backend(uint32_t version)
{
	(void)version;
	return NULL;
}
