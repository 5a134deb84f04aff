/*
 * pin.c - registers the memory of chunks for direct access by a device.
 */
#include "core/core.h"
#include "kvtier/kvtier_cuda.h"

enum kvt_status kvt_gpu_pin_cache(struct kvt_gpu *g, struct kvt *k)
{
	enum kvt_status status = kvt_usable(k);
	struct kvt_arena *arena;

	if (status != KVT_OK)
		return status;
	if (k->l1 == NULL)
		return KVT_OK;
	arena = kvt_l1_arena(k->l1);
	return kvt_gpu_pin(g, kvt_arena_base(arena), kvt_arena_capacity(arena));
}
