/*
 * abi_test.c - numbers and structs of the driver are those of cuda.h, and the Toolkit's libcuda.so has every
 * function that is asked for. Built where the Toolkit is: a difference does not compile.
 */
#include <cuda.h>
#include <stddef.h>

#include "gpu/cuda_driver.h"

#define SAME(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #theirs)

SAME(KVT_CUDA_SUCCESS, CUDA_SUCCESS);
SAME(KVT_CUDA_NOT_READY, CUDA_ERROR_NOT_READY);
SAME(KVT_CUDA_ALREADY, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
SAME(KVT_CUDA_NOT_SUPPORTED, CUDA_ERROR_NOT_SUPPORTED);
SAME(KVT_CUDA_MULTIPROCESSORS, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
SAME(KVT_CUDA_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
SAME(KVT_CUDA_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
SAME(KVT_CUDA_CAN_REGISTER, CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED);
SAME(KVT_CUDA_STREAM_NON_BLOCKING, CU_STREAM_NON_BLOCKING);
SAME(KVT_CUDA_EVENT_WITHOUT_TIMING, CU_EVENT_DISABLE_TIMING);
SAME(KVT_CUDA_REGISTER_PORTABLE_MAP, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
SAME(KVT_CUDA_REGISTER_PORTABLE_MAP, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
SAME(KVT_CUDA_CAPTURE_RELAXED, CU_STREAM_CAPTURE_MODE_RELAXED);
#if CUDA_VERSION >= 12080
SAME(KVT_CUDA_SOURCE_IN_STREAM_ORDER, CU_MEMCPY_SRC_ACCESS_ORDER_STREAM);
SAME(KVT_CUDA_BESIDE_COMPUTE, CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE);
SAME(sizeof(struct kvt_cuda_copy_attributes), sizeof(CUmemcpyAttributes));
SAME(offsetof(struct kvt_cuda_copy_attributes, source_hint), offsetof(CUmemcpyAttributes, srcLocHint));
SAME(offsetof(struct kvt_cuda_copy_attributes, target_hint), offsetof(CUmemcpyAttributes, dstLocHint));
SAME(offsetof(struct kvt_cuda_copy_attributes, flags), offsetof(CUmemcpyAttributes, flags));
#endif
SAME(sizeof(CUdeviceptr), sizeof(uint64_t));
SAME(sizeof(CUresult), sizeof(int));
SAME(sizeof(CUdevice), sizeof(int));

int main(int argc, char **argv)
{
	struct kvt_surroundings surroundings;
	struct kvt_cuda_driver driver;
	struct kvt_config config;
	int missing;

	kvt_config_init(&config, sizeof(config));
	kvt_surroundings_init(&surroundings, &config);
	if (argc != 2 || kvt_cuda_driver_open(&driver, argv[1], &surroundings) != KVT_OK)
		return 1;
	missing = driver.copy_batch_1 == NULL || driver.capture_mode == NULL;
	if (CUDA_VERSION >= 13000)
		missing = missing || driver.copy_batch == NULL;
	kvt_cuda_driver_close(&driver);
	return missing;
}
