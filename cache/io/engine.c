/*
 * engine.c - the common part of both engines: continues a transfer of which the kernel moved only a
 * part.
 *
 * The kernel may move fewer bytes than requested without an error (a signal, a bound on one call's
 * bytes, a shortage of memory). A transfer on a direct file can only continue at a multiple of its
 * alignment; a transfer that stopped elsewhere has met the end of the file.
 */
#include <errno.h>

#include "io/engine.h"

/* Adds a piece, or makes the last piece longer if this one follows it in memory. */
static void add_piece(struct iovec *out, uint32_t *count, char *base, size_t bytes)
{
	struct iovec *last = *count > 0 ? &out[*count - 1] : NULL;

	if (last != NULL && (char *)last->iov_base + last->iov_len == base)
		last->iov_len += bytes;
	else
		out[(*count)++] = (struct iovec){.iov_base = base, .iov_len = bytes};
}

uint32_t kvt_io_rest(const struct kvt_io_op *op, uint64_t done, struct iovec *out)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < op->piece_count; i++) {
		const struct iovec *piece = &op->pieces[i];

		if (done >= piece->iov_len) {
			done -= piece->iov_len;
			continue;
		}
		add_piece(out, &count, (char *)piece->iov_base + done, piece->iov_len - done);
		done = 0;
	}
	return count;
}

static bool passing(int64_t result)
{
	return result == -EINTR || result == -EAGAIN || result == -ECANCELED;
}

enum kvt_io_next kvt_io_settle(
	struct kvt_io_op *op, int64_t result, uint64_t *done, uint32_t *retries)
{
	const struct kvt_machine_file *file = (const struct kvt_machine_file *)op->file;

	if (result < 0) {
		if (passing(result) && (*retries)++ < KVT_IO_RETRIES)
			return KVT_IO_AGAIN;
		op->result = result;
		return KVT_IO_DONE;
	}
	*retries = 0;
	*done += (uint64_t)result;
	op->result = (int64_t)*done;
	if (op->kind == KVT_IO_SYNC || result == 0 || *done >= kvt_io_bytes(op))
		return KVT_IO_DONE;
	return (op->offset + *done) % file->alignment == 0 ? KVT_IO_AGAIN : KVT_IO_DONE;
}
