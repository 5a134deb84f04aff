/*
 * gpu.h - how the public functions (gpu.c) and the backends that copy call each other.
 *
 * A backend gets checked jobs and reports their end. The host backend (host.c) is part of
 * libkvtier; the CUDA backend (cuda.c) lies in libkvtier_cuda.so, which exports only
 * kvt_gpu_cuda_backend, and is loaded by load.c. Both see the structs of this header:
 * KVT_GPU_BACKEND must be increased when one of them, or layout.h, index.h or turn.h, changes.
 *
 * Every function of a backend but create and destroy may run in several threads at once.
 */
#ifndef KVT_GPU_H
#define KVT_GPU_H

#include "gpu/layout.h"
#include "chunk/note.h"

#define KVT_GPU_BACKEND 3u
#define KVT_GPU_VIEWS   8u /* most layouts of an engine in addition to its first */

/* The objects that a backend uses. Borrowed for the engine's life, and not changed. */
struct kvt_gpu_setup {
	const struct kvt_gpu_config *config; /* checked; has no texts except driver and memo */
	const struct kvt_gpu_paged *paged;
	const struct kvt_surroundings *surroundings;
};

struct kvt_gpu_engine; /* private to a backend */

struct kvt_gpu_backend {
	uint32_t version; /* the value of KVT_GPU_BACKEND with which the backend was built */
	const char *name; /* static */

	/* KVT_ENOTSUP: there is no such device or driver; the log has the cause. KVT_ENOMEM,
	 * KVT_EIO. */
	enum kvt_status (*create)(
		const struct kvt_gpu_setup *setup, struct kvt_gpu_engine **out) KVT_MUST_CHECK;
	void (*destroy)(struct kvt_gpu_engine *e);

	/* Adds another layout of the same memory. Moves refer to it by `view`, which counts from 1
	 * in the order of these calls; only one call at a time. Borrowed for the engine's life.
	 * KVT_ENOTSUP: keys cannot be turned on this device; KVT_EIO. */
	enum kvt_status (*add_view)(
		struct kvt_gpu_engine *e, const struct kvt_gpu_paged *paged) KVT_MUST_CHECK;

	/* With KVT_OK takes over the move, which is freed with free(). KVT_BUSY, KVT_EIO. */
	enum kvt_status (*begin)(struct kvt_gpu_engine *e, struct kvt_gpu_move *move,
		uint64_t *op) KVT_MUST_CHECK;
	/* As kvt_gpu_poll. */
	enum kvt_status (*poll)(struct kvt_gpu_engine *e, uint64_t op) KVT_MUST_CHECK;

	/* Pins whole pages, no more than config.pin_bytes at a time. */
	enum kvt_status (*pin)(struct kvt_gpu_engine *e, void *base, uint64_t bytes) KVT_MUST_CHECK;

	/* Sets the counts that the backend knows; does not change `size` and the other members. */
	void (*stats)(struct kvt_gpu_engine *e, struct kvt_gpu_stats *out);
	size_t (*describe)(struct kvt_gpu_engine *e, char *text, size_t bytes); /* as snprintf */
};

extern const struct kvt_gpu_backend kvt_gpu_host;

/*
 * Adds a layout of an engine's memory, for other parts of the library that do not copy whole blocks
 * (core/fragments.c). *view is its number for kvt_gpu_view_begin, valid as long as the engine.
 * KVT_EINVAL; KVT_FULL: there are KVT_GPU_VIEWS already; KVT_ENOTSUP: keys cannot be turned on this
 * device; KVT_EIO, KVT_ENOMEM.
 */
enum kvt_status kvt_gpu_view_add(struct kvt_gpu *g, const struct kvt_gpu_layout *layout,
	const struct kvt_gpu_parts *parts, uint32_t *view) KVT_MUST_CHECK;
/* Returns the layout of a view; NULL: there is no such view. */
const struct kvt_gpu_paged *kvt_gpu_view(struct kvt_gpu *g, uint32_t view);
/* Like kvt_gpu_gather_begin and kvt_gpu_scatter_begin. turn: for a scatter, how its keys are
 * turned, copied during the call; or NULL. */
enum kvt_status kvt_gpu_view_begin(struct kvt_gpu *g, uint32_t view, const struct kvt_gpu_job *job,
	bool scatter, const struct kvt_gpu_turn *turn, uint64_t *op) KVT_MUST_CHECK;

/* The only symbol of libkvtier_cuda.so. Returns NULL if the library was built for another version
 * than `version`. */
#define KVT_GPU_SYMBOL "kvt_gpu_cuda_backend"
KVT_API const struct kvt_gpu_backend *kvt_gpu_cuda_backend(uint32_t version);

/*
 * Loads libkvtier_cuda.so: the one at `library`; if that is NULL, the one in the folder of this
 * library, else the one that the loader finds. *handle is for dlclose, once the backend is not used
 * any more. KVT_ENOTSUP: it is missing, or of another version; the log has the cause.
 */
enum kvt_status kvt_gpu_load(const char *library, const struct kvt_surroundings *s, void **handle,
	const struct kvt_gpu_backend **out) KVT_MUST_CHECK;

#endif
