/*
 * cuda_driver.c - loads the driver and fills the table of its functions.
 */
#include "gpu/cuda_driver.h"

#include <dlfcn.h>
#include <string.h>

#define LIBRARY "libcuda.so.1"

const char *kvt_cuda_error_text(const struct kvt_cuda_driver *d, int error)
{
	const char *text = NULL;

	if (d->error_name(error, &text) != KVT_CUDA_SUCCESS || text == NULL)
		return "unknown error";
	return text;
}

bool kvt_cuda_fatal(int error)
{
	switch (error) {
	case 4:   /* DEINITIALIZED */
	case 201: /* INVALID_CONTEXT */
	case 214: /* ECC_UNCORRECTABLE */
	case 220: /* NVLINK_UNCORRECTABLE */
	case 226: /* CONTAINED */
	case 700: /* ILLEGAL_ADDRESS */
	case 702: /* LAUNCH_TIMEOUT */
	case 709: /* CONTEXT_IS_DESTROYED */
	case 710: /* ASSERT */
	case 714: /* HARDWARE_STACK_ERROR */
	case 715: /* ILLEGAL_INSTRUCTION */
	case 716: /* MISALIGNED_ADDRESS */
	case 717: /* INVALID_ADDRESS_SPACE */
	case 718: /* INVALID_PC */
	case 719: /* LAUNCH_FAILED */
	case 721: /* TENSOR_MEMORY_LEAK */
	case 810: /* MPS_CLIENT_TERMINATED */
		return true;
	default:
		return false;
	}
}

/* Finds one function. Returns false if it is missing and must not be. */
static bool find(void *handle, const char *symbol, bool must, void **out)
{
	*out = dlsym(handle, symbol);
	return *out != NULL || !must;
}

enum kvt_status kvt_cuda_driver_open(
	struct kvt_cuda_driver *d, const char *path, const struct kvt_surroundings *s)
{
	const char *missing = NULL;

	memset(d, 0, sizeof(*d));
	d->handle = dlopen(path != NULL ? path : LIBRARY, RTLD_NOW | RTLD_LOCAL);
	if (d->handle == NULL) {
		const char *why = dlerror();

		kvt_note(s, KVT_LOG_WARN, "gpu: no driver: %s", why != NULL ? why : "unknown");
		return KVT_ENOTSUP;
	}
#define KVT_CUDA_CALL(member, symbol, arguments) \
	if (!find(d->handle, symbol, true, (void **)(void *)&d->member)) \
		missing = symbol;
#define KVT_CUDA_MAY(member, symbol, arguments) \
	(void)find(d->handle, symbol, false, (void **)(void *)&d->member);
#include "gpu/cuda_calls.def"
#undef KVT_CUDA_CALL
#undef KVT_CUDA_MAY
	if (missing == NULL)
		return KVT_OK;
	kvt_note(s, KVT_LOG_WARN, "gpu: the driver has no %s: too old", missing);
	kvt_cuda_driver_close(d);
	return KVT_ENOTSUP;
}

void kvt_cuda_driver_close(struct kvt_cuda_driver *d)
{
	if (d->handle != NULL)
		dlclose(d->handle);
	memset(d, 0, sizeof(*d));
}
