/*
 * cuda_pin.c - pins memory of this machine, which the device then reads and writes itself.
 *
 * The driver pins all memory of one call or none, takes a tenth of a second for a GB, and has
 * failed on pieces of half a TB: so gpu.c passes smaller pieces, and each is usable as soon as it
 * is pinned. The driver refuses a copy across two pieces, so code that cuts copies asks this file
 * for their ends.
 */
#include <stdlib.h>
#include <string.h>

#include "gpu/cuda_backend.h"

/* Returns the index of the first piece that ends after an address. */
static size_t first_behind(const struct kvt_gpu_engine *e, uint64_t address)
{
	size_t low = 0, high = e->piece_count;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (e->pieces[middle].base + e->pieces[middle].bytes > address)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

uint64_t kvt_cuda_piece_at(
	const struct kvt_gpu_engine *e, uint64_t address, uint64_t bytes, uint64_t *device)
{
	size_t i = first_behind(e, address);
	const struct kvt_cuda_piece *piece;
	uint64_t here;

	*device = 0;
	if (i == e->piece_count)
		return bytes;
	piece = &e->pieces[i];
	if (piece->base > address) {
		here = piece->base - address;
	} else {
		here = piece->base + piece->bytes - address;
		*device = piece->device + (address - piece->base);
	}
	return here < bytes ? here : bytes;
}

bool kvt_cuda_pinned(const struct kvt_gpu_engine *e, const struct kvt_gpu_move *move)
{
	for (size_t i = 0; i < move->segment_count; i++) {
		uint64_t at = (uint64_t)(uintptr_t)move->segments[i].base;
		uint64_t left = move->segments[i].bytes;

		while (left > 0) {
			uint64_t device, here = kvt_cuda_piece_at(e, at, left, &device);

			if (device == 0)
				return false;
			at += here;
			left -= here;
		}
	}
	return true;
}

enum kvt_status kvt_cuda_piece_add(struct kvt_gpu_engine *e, struct kvt_cuda_piece piece)
{
	size_t at = first_behind(e, piece.base);

	if (at < e->piece_count && e->pieces[at].base < piece.base + piece.bytes)
		return KVT_EINVAL;
	if (e->piece_count == e->piece_room) {
		size_t room = e->piece_room == 0 ? 16 : e->piece_room * 2;
		struct kvt_cuda_piece *more = reallocarray(e->pieces, room, sizeof(*more));

		if (more == NULL)
			return KVT_ENOMEM;
		e->pieces = more;
		e->piece_room = room;
	}
	memmove(&e->pieces[at + 1], &e->pieces[at], (e->piece_count - at) * sizeof(piece));
	e->pieces[at] = piece;
	e->piece_count++;
	e->stats.pinned_bytes += piece.bytes;
	e->stats.pinned_pieces++;
	return KVT_OK;
}

void kvt_cuda_piece_drop(struct kvt_gpu_engine *e, uint64_t base)
{
	size_t at = first_behind(e, base);

	e->stats.pinned_bytes -= e->pieces[at].bytes;
	e->stats.pinned_pieces--;
	e->piece_count--;
	memmove(&e->pieces[at], &e->pieces[at + 1], (e->piece_count - at) * sizeof(e->pieces[0]));
}

/* Registers a piece, which takes long, so the lock is not held: uses only the driver and constants
 * of the engine. */
static int register_piece(struct kvt_gpu_engine *e, void *base, uint64_t bytes, uint64_t *device)
{
	struct kvt_cuda_driver *d = &e->driver;
	int error = d->host_register(base, bytes, KVT_CUDA_REGISTER_PORTABLE_MAP);

	if (error != KVT_CUDA_SUCCESS)
		return error;
	error = d->host_pointer(device, base, 0);
	if (error != KVT_CUDA_SUCCESS)
		(void)d->host_unregister(base);
	return error;
}

enum kvt_status kvt_cuda_pin(struct kvt_gpu_engine *e, void *base, uint64_t bytes)
{
	struct kvt_cuda_piece piece = {(uint64_t)(uintptr_t)base, bytes, 0};
	enum kvt_status status = KVT_OK;
	struct kvt_cuda_visit visit;
	bool entered;
	int error;

	if (!e->can_pin)
		return KVT_ENOTSUP;
	pthread_mutex_lock(&e->lock);
	entered = !e->lost && kvt_cuda_enter(e, &visit);
	pthread_mutex_unlock(&e->lock);
	if (!entered)
		return KVT_EIO;
	error = register_piece(e, base, bytes, &piece.device);
	pthread_mutex_lock(&e->lock);
	if (!kvt_cuda_fine(e, error, "pinning memory"))
		status = KVT_EIO;
	else
		status = kvt_cuda_piece_add(e, piece);
	pthread_mutex_unlock(&e->lock);
	if (error == KVT_CUDA_SUCCESS && status != KVT_OK)
		(void)e->driver.host_unregister(base);
	kvt_cuda_leave(e, &visit);
	return status;
}

void kvt_cuda_unpin_all(struct kvt_gpu_engine *e)
{
	for (size_t i = 0; i < e->piece_count; i++)
		(void)kvt_cuda_fine(e,
			e->driver.host_unregister((void *)(uintptr_t)e->pieces[i].base),
			"unpinning memory");
	free(e->pieces);
	e->pieces = NULL;
	e->piece_count = e->piece_room = 0;
}
