/*
 * kvtierd_write.c - writes a chunk: a PUT of its bytes in place, followed by names and footer.
 *
 * A PUT that ends without an answer may have been stored, or may be stored later. An erase of its
 * tenant covers it all the same, because it changes the names of the tenant's chunks.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "tiers/nvme/nvme_format.h"
#include "tiers/kvtierd/kvtierd.h"

/* Makes names and footer, except for the time and the number of the PUT in the footer. */
static enum kvt_status prepare(struct kvtierd_job *job)
{
	const struct kvt_tier_request *r = job->request;
	const struct kvt_item *item = r->item;
	uint64_t names = nvme_names_bytes(item->blocks);

	names = (names + 3) / 4 * 4;
	if (names > REDIS_MAX_EXTRA)
		/* names that do not fit are left out: a chunk without events is better than no
		 * chunk */
		names = 0;
	job->tail_bytes = names + REDIS_FOOTER;
	job->tail = calloc(1, job->tail_bytes);
	if (job->tail == NULL)
		return KVT_ENOMEM;
	if (names > 0)
		nvme_names_encode(item->blocks, job->tail);
	job->footer = (struct redis_footer){
		.key = r->keys[0],
		.fingerprint = job->t->fingerprint,
		.tenant = item->tenant,
		.bytes = r->bytes,
		.part_payload = r->bytes,
		.part_bytes = UINT32_MAX,
		.parts = 1,
		.tokens = item->tokens,
		.ttl_ns = item->ttl_ns,
		.checksum = r->checksum,
		.names_bytes = (uint32_t)names,
		.extra_sum = redis_extra_sum(job->tail, names),
	};
	if (item->parent != NULL) {
		job->footer.flags |= REDIS_PARENT;
		job->footer.parent = *item->parent;
	}
	return KVT_OK;
}

static void stored(struct kvtierd_job *job)
{
	struct kvtierd *t = job->t;
	struct kvt_tier_request *r = job->request;
	struct kvt_tier_known known;

	known = redis_footer_known(&job->footer);
	kvt_presence_there(t->presence, &r->keys[0], &known, kvt_now(t->s));
	pthread_mutex_lock(&t->lock);
	t->counts.stores++;
	t->counts.store_bytes += r->bytes;
	pthread_mutex_unlock(&t->lock);
	kvtierd_works(t);
	if (r->announce && r->item->blocks != NULL && t->watch.stored != NULL)
		t->watch.stored(t->watch.self, KVT_TIER_L2, &r->keys[0], r->item->blocks);
	kvtierd_job_done(job, KVT_OK);
}

static void put_done(struct kvtierd_exchange *x)
{
	struct kvtierd_job *job = x->user;
	struct kvtierd *t = job->t;
	enum kvt_status status = kvtierd_put_answer(t, x);

	if (status == KVT_OK) {
		stored(job);
		return;
	}
	if (status == KVT_FULL && x->answer->quota)
		kvtierd_count(t, &t->counts.quota_refused, 1);
	kvtierd_job_done(job, status == KVT_MISS ? KVT_BUSY : status);
}

static void send_put(struct kvtierd_job *job)
{
	struct kvtierd *t = job->t;
	struct kvt_tier_request *r = job->request;
	struct redis_footer *f = &job->footer;
	char name[KVTIERD_NAME_ROOM];

	if (getrandom(&f->writer, sizeof(f->writer), 0) != (ssize_t)sizeof(f->writer)) {
		kvtierd_job_done(job, KVT_EIO);
		return;
	}
	f->written_wall_ns = kvt_steady_wall(t->s);
	redis_footer_encode(f, job->tail + job->tail_bytes - REDIS_FOOTER);
	job->x.segments = r->segments;
	job->x.segment_count = r->segment_count;
	job->x.segment_bytes = r->bytes;
	job->x.tail = job->tail;
	job->x.tail_bytes = job->tail_bytes;
	kvtierd_chunk_name(&t->fingerprint, &r->keys[0], name);
	kvtierd_ask_put(&t->place, name, &f->tenant, &job->x);
	job->x.deadline_ns = job->deadline_ns;
	job->x.done = put_done;
	job->x.user = job;
	kvtierd_http_submit(t->http, &job->x);
}

static bool request_is_good(const struct kvt_tier_request *r)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < r->segment_count; i++)
		sum += r->segments[i].bytes;
	return r->key_count == 1 && r->item != NULL && r->bytes > 0 && sum >= r->bytes;
}

void kvtierd_write_begin(struct kvtierd_job *job)
{
	enum kvt_status status = KVT_EINVAL;

	if (request_is_good(job->request))
		status = job->request->bytes <= UINT32_MAX ? prepare(job) : KVT_FULL;
	if (status == KVT_OK)
		send_put(job);
	else
		kvtierd_job_done(job, status);
}
