/*
 * load.c - finds libkvtier_cuda.so and checks its version.
 *
 * The search begins in the folder of the library that has this function, because a
 * libkvtier_cuda.so there is of the same version. RTLD_LOCAL hides its symbols from other code.
 */
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "gpu/gpu.h"

#define LIBRARY "libkvtier_cuda.so.1"

/* Writes the path of libkvtier_cuda.so in the folder of this library. Returns false if that folder
 * is unknown. */
static bool beside(char *path, size_t size)
{
	Dl_info info;
	const char *slash;
	int n;

	if (dladdr((const void *)&kvt_gpu_host, &info) == 0 || info.dli_fname == NULL)
		return false;
	slash = strrchr(info.dli_fname, '/');
	if (slash == NULL)
		return false;
	n = snprintf(path, size, "%.*s/%s", (int)(slash - info.dli_fname), info.dli_fname, LIBRARY);
	return n > 0 && (size_t)n < size;
}

static void *open_library(const char *library)
{
	char path[PATH_MAX];
	void *handle = NULL;

	if (library != NULL)
		return dlopen(library, RTLD_NOW | RTLD_LOCAL);
	if (beside(path, sizeof(path)))
		handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	return handle != NULL ? handle : dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
}

enum kvt_status kvt_gpu_load(const char *library, const struct kvt_surroundings *s, void **handle,
	const struct kvt_gpu_backend **out)
{
	const struct kvt_gpu_backend *(*ask)(uint32_t version);
	const struct kvt_gpu_backend *backend = NULL;
	void *loaded = open_library(library);

	if (loaded == NULL) {
		const char *why = dlerror();

		kvt_note(s, KVT_LOG_WARN, "gpu: no %s: %s; blocks of a device are not copied by it",
			library != NULL ? library : LIBRARY, why != NULL ? why : "unknown");
		return KVT_ENOTSUP;
	}
	*(void **)&ask = dlsym(loaded, KVT_GPU_SYMBOL);
	if (ask != NULL)
		backend = ask(KVT_GPU_BACKEND);
	if (backend == NULL || backend->version != KVT_GPU_BACKEND) {
		kvt_note(s, KVT_LOG_WARN,
			"gpu: %s is of another version: expected version %u of its interface",
			library != NULL ? library : LIBRARY, KVT_GPU_BACKEND);
		dlclose(loaded);
		return KVT_ENOTSUP;
	}
	*handle = loaded;
	*out = backend;
	return KVT_OK;
}
