/*
 * nvme_transfer.c - moves a chunk between memory and files.
 *
 * The image of a chunk is its header, its payload in place in the arena, and one page for the rest
 * of the last page; so the payload is copied neither on its way out nor on its way in, and no byte
 * beyond a segment is touched. The transfer takes as few operations as its runs, files and
 * NVME_OP_BYTES allow; the header is part of the first. Where segments do not fit O_DIRECT
 * (alignment), or the payload is sealed, the image has a buffer of its own instead.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tiers/nvme/nvme.h"

static uint64_t pages(uint64_t bytes)
{
	return (bytes + NVME_PAGE - 1) / NVME_PAGE * NVME_PAGE;
}

enum kvt_status nvme_transfer_room(struct nvme_job *job, uint32_t head_bytes)
{
	void *p = NULL;

	if (job->tail == NULL) {
		if (posix_memalign(&p, NVME_PAGE, NVME_PAGE) != 0)
			return KVT_ENOMEM;
		job->tail = p;
	}
	if (job->head_room < head_bytes) {
		if (posix_memalign(&p, NVME_PAGE, head_bytes) != 0)
			return KVT_ENOMEM;
		free(job->head);
		job->head = p;
		job->head_room = head_bytes;
	}
	job->head_bytes = head_bytes;
	return KVT_OK;
}

static bool fits(const struct nvme *t, const struct kvt_segment *segments, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		if ((uintptr_t)segments[i].base % t->space.alignment != 0)
			return false;
		if (i + 1 < count && segments[i].bytes % NVME_PAGE != 0)
			return false;
	}
	return true;
}

static void image_add(struct nvme_job *job, void *base, uint64_t bytes)
{
	if (bytes > 0)
		job->image[job->image_count++] =
			(struct iovec){.iov_base = base, .iov_len = (size_t)bytes};
}

enum kvt_status nvme_transfer_prepare(struct nvme *t, struct nvme_job *job,
	const struct kvt_segment *segments, uint32_t count, bool bounce)
{
	bool write = job->kind == NVME_JOB_WRITE;
	uint64_t rest = job->bytes % NVME_PAGE;
	void *p = NULL;

	job->image_count = 0;
	job->total = job->head_bytes + pages(job->bytes);
	image_add(job, job->head, job->head_bytes);
	if (bounce || !fits(t, segments, count)) {
		if (posix_memalign(&p, NVME_PAGE, pages(job->bytes)) != 0)
			return KVT_ENOMEM;
		job->bounce = p;
		image_add(job, p, pages(job->bytes));
		if (write && !bounce) {
			uint8_t *to = p;

			for (uint32_t i = 0; i < count; to += segments[i++].bytes)
				memcpy(to, segments[i].base, segments[i].bytes);
		}
		if (write)
			memset((uint8_t *)p + job->bytes, 0, pages(job->bytes) - job->bytes);
		return KVT_OK;
	}
	for (uint32_t i = 0; i < count; i++)
		image_add(job, segments[i].base,
			i + 1 < count ? segments[i].bytes : segments[i].bytes - rest);
	if (rest > 0) {
		image_add(job, job->tail, NVME_PAGE);
		if (write) {
			memset(job->tail, 0, NVME_PAGE);
			memcpy(job->tail,
				(uint8_t *)segments[count - 1].base + segments[count - 1].bytes -
					rest,
				rest);
		}
	}
	return KVT_OK;
}

uint32_t nvme_transfer_slice(
	const struct nvme_job *job, uint64_t at, uint64_t bytes, struct iovec *out)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < job->image_count && bytes > 0; i++) {
		uint64_t len = job->image[i].iov_len;

		if (at >= len) {
			at -= len;
			continue;
		}
		len -= at;
		if (len > bytes)
			len = bytes;
		out[count++] = (struct iovec){
			.iov_base = (uint8_t *)job->image[i].iov_base + at,
			.iov_len = (size_t)len,
		};
		bytes -= len;
		at = 0;
	}
	return count;
}

/* Begins the next operation of a job. Returns false if no free operation is left. */
static bool issue_one(struct nvme *t, struct nvme_job *job)
{
	struct kvt_io_op *op = nvme_op_take(t, &job->actor);
	uint64_t most = NVME_OP_BYTES + (job->next == 0 ? job->head_bytes : 0);
	struct nvme_file *file;
	uint64_t together;

	if (op == NULL)
		return false;
	file = nvme_space_find(t, job->runs, job->run_count, job->next, &op->offset, &together);
	if (together > job->total - job->next)
		together = job->total - job->next;
	if (together > most)
		together = most;
	op->kind = job->kind == NVME_JOB_WRITE ? KVT_IO_WRITE : KVT_IO_READ;
	op->file = file->file;
	op->piece_count = nvme_transfer_slice(job, job->next, together, op->pieces);
	t->op_at[op - t->ops] = job->next;
	job->next += together;
	job->under_way++;
	nvme_op_begin(t, op);
	return true;
}

void nvme_transfer_begin(struct nvme *t, struct nvme_job *job)
{
	job->next = 0;
	job->under_way = 0;
	job->status = KVT_OK;
	job->link = NULL;
	*t->issuing_end = job;
	t->issuing_end = &job->link;
}

size_t nvme_transfer_issue(struct nvme *t)
{
	size_t n = 0;

	while (t->issuing != NULL) {
		struct nvme_job *job = t->issuing;

		while (job->next < job->total) {
			if (!issue_one(t, job))
				return n;
			n++;
		}
		t->issuing = job->link;
		if (t->issuing == NULL)
			t->issuing_end = &t->issuing;
		job->link = NULL;
	}
	return n;
}

static uint64_t op_bytes(const struct kvt_io_op *op)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < op->piece_count; i++)
		n += op->pieces[i].iov_len;
	return n;
}

uint64_t nvme_transfer_moved(const struct nvme *t, const struct kvt_io_op *op, uint64_t *at)
{
	uint64_t want = op_bytes(op);

	*at = t->op_at[op - t->ops];
	return op->result >= 0 && (uint64_t)op->result == want ? want : 0;
}

bool nvme_transfer_done(struct nvme *t, struct nvme_job *job, struct kvt_io_op *op)
{
	uint64_t want = op_bytes(op);

	job->under_way--;
	if (op->result < 0 || (uint64_t)op->result != want) {
		/* An I/O layer moves all bytes that it can, so a result of fewer bytes means that
		 * the file is too short, or that the layer has a defect. */
		int error = op->result < 0 ? (int)-op->result : EIO;

		nvme_io_failed(t, op->kind == KVT_IO_WRITE ? "write" : "read", error);
		if (job->status == KVT_OK)
			job->status = error == ENOSPC ? KVT_FULL : KVT_EIO;
	} else {
		nvme_io_worked(t);
	}
	nvme_op_give(t, op);
	return job->under_way == 0 && job->next == job->total;
}

void nvme_copy_out(
	const uint8_t *from, const struct kvt_segment *to, uint32_t count, uint64_t bytes)
{
	for (uint32_t i = 0; i < count && bytes > 0; i++) {
		uint64_t n = to[i].bytes < bytes ? to[i].bytes : bytes;

		memcpy(to[i].base, from, n);
		from += n;
		bytes -= n;
	}
}

/* --- rates ------------------------------------------------------------------------------------ */

#define RATE_WINDOW_NS 50000000

void nvme_rate_begin(struct nvme *t, struct nvme_rate *rate)
{
	if (rate->active++ == 0)
		rate->since_ns = kvt_now(t->s);
}

void nvme_rate_end(struct nvme *t, struct nvme_rate *rate, uint64_t bytes)
{
	int64_t now = kvt_now(t->s);
	uint64_t fresh;

	rate->bytes += bytes;
	rate->busy_ns += now - rate->since_ns;
	rate->since_ns = now;
	rate->active--;
	if (rate->busy_ns < RATE_WINDOW_NS)
		return;
	fresh = (uint64_t)((double)rate->bytes * 1e9 / (double)rate->busy_ns);
	pthread_mutex_lock(&t->lock);
	rate->per_second =
		rate->per_second == 0 ? fresh : rate->per_second - rate->per_second / 4 + fresh / 4;
	pthread_mutex_unlock(&t->lock);
	rate->bytes = 0;
	rate->busy_ns = 0;
}
