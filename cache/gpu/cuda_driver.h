/*
 * cuda_driver.h - NVIDIA's driver as a table of functions, loaded by dlopen.
 *
 * The driver is used, not the CUDA runtime, because its interface is the same in all its releases,
 * no CUDA library has to be linked or shipped, the code builds without the Toolkit, and no error
 * state stays in a thread, where other code (the engine's framework) would find it.
 */
#ifndef KVT_CUDA_DRIVER_H
#define KVT_CUDA_DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "chunk/note.h"

/* CUresult */
#define KVT_CUDA_SUCCESS       0
#define KVT_CUDA_NOT_READY     600
#define KVT_CUDA_ALREADY       712 /* registered */
#define KVT_CUDA_NOT_SUPPORTED 801
/* CUdevice_attribute */
#define KVT_CUDA_MULTIPROCESSORS 16
#define KVT_CUDA_MAJOR           75
#define KVT_CUDA_MINOR           76
#define KVT_CUDA_CAN_REGISTER    99
/* flags */
#define KVT_CUDA_STREAM_NON_BLOCKING   1u
#define KVT_CUDA_EVENT_WITHOUT_TIMING  2u
/* PORTABLE | DEVICEMAP, both for registering and for allocating */
#define KVT_CUDA_REGISTER_PORTABLE_MAP 3u
#define KVT_CUDA_CAPTURE_RELAXED       2
#define KVT_CUDA_SOURCE_IN_STREAM_ORDER 1
#define KVT_CUDA_BESIDE_COMPUTE        1u

/* CUmemcpyAttributes */
struct kvt_cuda_copy_attributes {
	int source_order;
	struct {
		int type, id;
	} source_hint, target_hint; /* zero: none */
	unsigned flags;
};

struct kvt_cuda_driver {
	void *handle;
#define KVT_CUDA_CALL(member, symbol, arguments) int (*member) arguments;
#define KVT_CUDA_MAY(member, symbol, arguments)  int (*member) arguments; /* NULL: missing */
#include "gpu/cuda_calls.def"
#undef KVT_CUDA_CALL
#undef KVT_CUDA_MAY
};

/* Opens the driver, but does not initialise it. `path` NULL: libcuda.so.1. KVT_ENOTSUP: it is
 * missing or too old; the log has the cause. */
enum kvt_status kvt_cuda_driver_open(struct kvt_cuda_driver *d, const char *path,
	const struct kvt_surroundings *s) KVT_MUST_CHECK;
void kvt_cuda_driver_close(struct kvt_cuda_driver *d);

/* "CUDA_ERROR_..." Static. */
const char *kvt_cuda_error_text(const struct kvt_cuda_driver *d, int error);

/* Returns whether this error means that the context has ended, so that nothing can run in it any
 * more. */
bool kvt_cuda_fatal(int error);

#endif
