/*
 * nvme_replay.c - reads a log.
 *
 * One pass over the records counts them, a second one collects them. Then they are sorted, so that
 * a binary search finds whether a chunk is gone, whatever order the records had in the file.
 */
#include <stdlib.h>
#include <string.h>

#include "tiers/nvme/nvme_replay.h"

#define LOG_MOST   (4ull << 30) /* a longer log is not read */
#define READ_PIECE (8u << 20)

int64_t nvme_io_now(struct kvt_io *io, struct kvt_io_op *op)
{
	struct kvt_io_op *back = NULL;

	op->next = NULL;
	io->ops->submit(io, op);
	while (io->ops->reap(io, &back, 1, 100000000) == 0)
		;
	return back == op ? op->result : -1;
}

enum kvt_status nvme_file_read(
	struct kvt_io *io, const char *name, uint64_t most, uint8_t **bytes, size_t *len)
{
	struct kvt_io_op op = {.kind = KVT_IO_READ};
	struct kvt_io_file_info info;
	uint8_t *buffer = NULL;
	enum kvt_status status;
	uint64_t at = 0;

	status = io->ops->open(io, name, KVT_OPEN_READ, false, &op.file);
	if (status != KVT_OK)
		return status;
	status = io->ops->info(io, op.file, &info);
	if (status == KVT_OK && info.bytes > most)
		status = KVT_ECORRUPT;
	if (status == KVT_OK && (buffer = malloc(info.bytes + 1)) == NULL)
		status = KVT_ENOMEM;
	while (status == KVT_OK && at < info.bytes) {
		uint64_t n = info.bytes - at < READ_PIECE ? info.bytes - at : READ_PIECE;

		op.offset = at;
		op.pieces[0] = (struct iovec){buffer + at, n};
		op.piece_count = 1;
		if (nvme_io_now(io, &op) != (int64_t)n)
			status = KVT_EIO;
		at += n;
	}
	io->ops->close(io, op.file);
	if (status != KVT_OK) {
		free(buffer);
		return status;
	}
	*bytes = buffer;
	*len = info.bytes;
	return KVT_OK;
}

/* --- records --- */

static bool record_at(
	const struct nvme_replay *p, uint64_t i, struct nvme_record *out, bool *damaged)
{
	enum kvt_status status = nvme_record_decode(
		p->records + i * NVME_RECORD, p->store_id, p->head.number, i, out);

	*damaged = status != KVT_OK && status != KVT_MISS;
	return status == KVT_OK;
}

static void tally(struct nvme_replay *p, const struct nvme_record *r, uint64_t i, bool store)
{
	switch (r->type) {
	case NVME_ADD:
		if (store)
			p->adds[p->add_count] =
				(struct nvme_replay_add){.generation = r->generation, .i = i};
		p->add_count++;
		break;
	case NVME_REMOVE:
		if (store)
			p->removed[p->removed_count] = r->generation;
		p->removed_count++;
		break;
	case NVME_ERASE:
		for (uint32_t k = 0; store && k < r->key_count; k++)
			p->keys[p->key_count + k] =
				(struct nvme_kill){.key = r->keys[k], .generation = r->generation};
		p->key_count += r->key_count;
		break;
	case NVME_TENANT:
		if (store) {
			p->tenants[p->tenant_count] =
				(struct nvme_kill){.generation = r->generation};
			memcpy(p->tenants[p->tenant_count].key.bytes, r->tenant.bytes,
				sizeof(r->tenant.bytes));
		}
		p->tenant_count++;
		break;
	case NVME_RESET:
		p->was_reset = true;
		if (r->generation > p->reset)
			p->reset = r->generation;
		break;
	case NVME_NONE:
		return;
	}
	if (r->generation > p->last)
		p->last = r->generation;
}

static void pass(struct nvme_replay *p, bool store)
{
	struct nvme_record r;
	bool damaged;

	p->add_count = p->removed_count = p->key_count = p->tenant_count = p->damaged = p->valid =
		0;
	for (uint64_t i = 0; i < p->count; i++) {
		if (record_at(p, i, &r, &damaged)) {
			tally(p, &r, i, store);
			p->valid++;
		}
		p->damaged += damaged;
	}
}

static int by_generation(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a;
	uint64_t y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* If two records have the same generation, the later one counts. */
static int by_add(const void *a, const void *b)
{
	const struct nvme_replay_add *x = a;
	const struct nvme_replay_add *y = b;
	int order = by_generation(&x->generation, &y->generation);

	return order != 0 ? order : (x->i < y->i ? -1 : x->i > y->i);
}

static int by_kill(const void *a, const void *b)
{
	const struct nvme_kill *x = a;
	const struct nvme_kill *y = b;
	int order = memcmp(x->key.bytes, y->key.bytes, KVT_KEY_BYTES);

	if (order != 0)
		return order;
	return x->generation < y->generation ? -1 : x->generation > y->generation;
}

/* Returns whether this key is erased with this generation or a later one. */
static bool killed(const struct nvme_kill *kills, uint64_t count, const struct kvt_key *key,
	uint64_t generation)
{
	struct nvme_kill want = {.key = *key, .generation = generation};
	uint64_t low = 0;
	uint64_t high = count;

	while (low < high) {
		uint64_t middle = low + (high - low) / 2;

		if (by_kill(&kills[middle], &want) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low < count && memcmp(kills[low].key.bytes, key->bytes, KVT_KEY_BYTES) == 0;
}

static bool is_gone(const struct nvme_replay *p, const struct nvme_record *r, int64_t wall)
{
	struct kvt_key tenant = {0};

	memcpy(tenant.bytes, r->tenant.bytes, sizeof(r->tenant.bytes));
	return (p->was_reset && r->generation <= p->reset) || r->expires_wall_ns <= wall ||
	       bsearch(&r->generation, p->removed, p->removed_count, sizeof(p->removed[0]),
		       by_generation) != NULL ||
	       killed(p->keys, p->key_count, &r->keys[0], r->generation) ||
	       killed(p->tenants, p->tenant_count, &tenant, r->generation);
}

static enum kvt_status collect(struct nvme_replay *p)
{
	pass(p, false);
	p->keys = calloc(p->key_count + 1, sizeof(p->keys[0]));
	p->tenants = calloc(p->tenant_count + 1, sizeof(p->tenants[0]));
	p->removed = calloc(p->removed_count + 1, sizeof(p->removed[0]));
	p->adds = calloc(p->add_count + 1, sizeof(p->adds[0]));
	if (p->keys == NULL || p->tenants == NULL || p->removed == NULL || p->adds == NULL)
		return KVT_ENOMEM;
	pass(p, true);
	qsort(p->keys, p->key_count, sizeof(p->keys[0]), by_kill);
	qsort(p->tenants, p->tenant_count, sizeof(p->tenants[0]), by_kill);
	qsort(p->removed, p->removed_count, sizeof(p->removed[0]), by_generation);
	qsort(p->adds, p->add_count, sizeof(p->adds[0]), by_add);
	return KVT_OK;
}

enum kvt_status nvme_replay_open(
	struct nvme_replay *p, struct kvt_io *io, const uint8_t store_id[16])
{
	size_t len = 0;
	enum kvt_status status;

	memset(p, 0, sizeof(*p));
	memcpy(p->store_id, store_id, sizeof(p->store_id));
	status = nvme_file_read(io, "log", LOG_MOST, &p->bytes, &len);
	if (status == KVT_OK)
		status = nvme_log_head_decode(p->bytes, len, store_id, &p->head);
	if (status != KVT_OK)
		return status;
	p->records = p->bytes + NVME_PAGE;
	p->count = (len - NVME_PAGE) / NVME_RECORD;
	p->last = p->head.generation;
	return collect(p);
}

void nvme_replay_close(struct nvme_replay *p)
{
	free(p->bytes);
	free(p->keys);
	free(p->tenants);
	free(p->removed);
	free(p->adds);
	memset(p, 0, sizeof(*p));
}

bool nvme_replay_add(
	const struct nvme_replay *p, uint64_t n, int64_t wall_ns, struct nvme_record *out)
{
	const struct nvme_replay_add *add = &p->adds[n];
	bool damaged;

	if (n + 1 < p->add_count && add[1].generation == add->generation)
		return false;
	return record_at(p, add->i, out, &damaged) && !is_gone(p, out, wall_ns);
}

bool nvme_replay_has(const struct nvme_replay *p, uint64_t generation, int64_t wall_ns)
{
	const struct nvme_replay_add *add =
		bsearch(&generation, p->adds, p->add_count, sizeof(p->adds[0]), by_generation);
	struct nvme_record record;
	bool damaged;

	while (add != NULL && add + 1 < p->adds + p->add_count && add[1].generation == generation)
		add++;
	return add != NULL && record_at(p, add->i, &record, &damaged) &&
	       !is_gone(p, &record, wall_ns);
}
