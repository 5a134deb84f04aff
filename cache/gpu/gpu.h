/*
 * gpu.h - the contract between the public functions (gpu.c) and the backends that copy.
 *
 * A backend gets checked jobs and reports their end. The host backend (host.c) is part of libkvtier; the CUDA backend
 * (cuda.c) lies in libkvtier_cuda.so, which exports only kvt_gpu_cuda_backend, and is loaded by load.c. Both see the
 * structs of this header: KVT_GPU_BACKEND increases with a change of any of them, or of layout.h, index.h or turn.h.
 *
 * Every function of a backend but create and destroy may run in several threads at once.
 */
#ifndef KVT_GPU_H
#define KVT_GPU_H

#include "gpu/layout.h"
#include "chunk/note.h"

#define KVT_GPU_BACKEND 3u
#define KVT_GPU_VIEWS   8u /* most further layouts of an engine, besides its own */

/* Parts that a backend works with. Borrowed for the engine's life, unchanged. */
struct kvt_gpu_setup {
	const struct kvt_gpu_config *config; /* checked; no texts except driver and memo */
	const struct kvt_gpu_paged *paged;
	const struct kvt_surroundings *surroundings;
};

struct kvt_gpu_engine; /* private to a backend */

struct kvt_gpu_backend {
	uint32_t version; /* the KVT_GPU_BACKEND of the backend's build */
	const char *name; /* static */

	/* KVT_ENOTSUP: no such device or driver, the log has the cause; KVT_ENOMEM, KVT_EIO. */
	enum kvt_status (*create)(
		const struct kvt_gpu_setup *setup, struct kvt_gpu_engine **out) KVT_MUST_CHECK;
	void (*destroy)(struct kvt_gpu_engine *e);

	/* Adds another layout of the same memory: moves name it by `view`, 1 and up in the order of these calls, which
	 * come one at a time. Borrowed for the engine's life. KVT_ENOTSUP: keys cannot be turned here; KVT_EIO. */
	enum kvt_status (*add_view)(
		struct kvt_gpu_engine *e, const struct kvt_gpu_paged *paged) KVT_MUST_CHECK;

	/* Takes the move (free()) with KVT_OK. KVT_BUSY, KVT_EIO. */
	enum kvt_status (*begin)(struct kvt_gpu_engine *e, struct kvt_gpu_move *move,
		uint64_t *op) KVT_MUST_CHECK;
	/* As kvt_gpu_poll. */
	enum kvt_status (*poll)(struct kvt_gpu_engine *e, uint64_t op) KVT_MUST_CHECK;

	/* Pins whole pages; no more than config.pin_bytes. */
	enum kvt_status (*pin)(struct kvt_gpu_engine *e, void *base, uint64_t bytes) KVT_MUST_CHECK;

	/* Adds the counts that the backend knows; leaves `size` and all other members alone. */
	void (*stats)(struct kvt_gpu_engine *e, struct kvt_gpu_stats *out);
	size_t (*describe)(struct kvt_gpu_engine *e, char *text, size_t bytes); /* as snprintf */
};

extern const struct kvt_gpu_backend kvt_gpu_host;

/*
 * Adds a layout of the memory that an engine has, for parts of this library that copy other things than whole blocks
 * (core/fragments.c). *view is a number for kvt_gpu_view_begin for as long as the engine lives. KVT_EINVAL; KVT_FULL:
 * there are KVT_GPU_VIEWS; KVT_ENOTSUP: keys cannot be turned on this device; KVT_EIO, KVT_ENOMEM.
 */
enum kvt_status kvt_gpu_view_add(struct kvt_gpu *g, const struct kvt_gpu_layout *layout,
	const struct kvt_gpu_parts *parts, uint32_t *view) KVT_MUST_CHECK;
/* The view's layout; NULL: no such view. */
const struct kvt_gpu_paged *kvt_gpu_view(struct kvt_gpu *g, uint32_t view);
/* Like kvt_gpu_gather_begin and kvt_gpu_scatter_begin; turn: NULL or of a scatter, copied. */
enum kvt_status kvt_gpu_view_begin(struct kvt_gpu *g, uint32_t view, const struct kvt_gpu_job *job,
	bool scatter, const struct kvt_gpu_turn *turn, uint64_t *op) KVT_MUST_CHECK;

/* The only symbol of libkvtier_cuda.so. NULL: the library was built for another version than `version`. */
#define KVT_GPU_SYMBOL "kvt_gpu_cuda_backend"
KVT_API const struct kvt_gpu_backend *kvt_gpu_cuda_backend(uint32_t version);

/*
 * Loads libkvtier_cuda.so: `library` or, NULL, the one in this library's folder, then by the loader's search. *handle
 * is for dlclose once the backend is not used any more. KVT_ENOTSUP: missing or of another version; the log has the
 * cause.
 */
enum kvt_status kvt_gpu_load(const char *library, const struct kvt_surroundings *s, void **handle,
	const struct kvt_gpu_backend **out) KVT_MUST_CHECK;

#endif
