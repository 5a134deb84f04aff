/*
 * kvtierd_write.c - a chunk goes: PUT of its bytes from where they lie, names and footer behind them.
 *
 * The footer is stamped with the epochs of the moment when the PUT is begun. An erase that comes
 * later changes them, so that a PUT which arrives after the erase is of no use to any reader. One that was to
 * be written before another process' erase was seen here is not begun after it: it would be stamped as of after it.
 *
 * A PUT that ends without an answer, or with a failure (5xx but for refusals), may have been stored, or
 * may be stored later; an erase of that key within the next minute therefore does not rely on deleting
 * (kvtierd_erase.c).
 */
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "tiers/nvme/nvme_format.h"
#include "tiers/kvtierd/kvtierd.h"

/* Names and footer, with the bytes that are not known before the PUT begins still missing. */
static enum kvt_status prepare(struct kvtierd_job *job)
{
	const struct kvt_tier_request *r = job->request;
	const struct kvt_item *item = r->item;
	uint64_t names = nvme_names_bytes(item->blocks);

	names = (names + 3) / 4 * 4;
	if (names > REDIS_MAX_EXTRA)
		names = 0; /* rather no events than no chunk */
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

static bool stamp_holds(struct kvtierd_job *job)
{
	struct kvtierd_stamp now;

	return kvtierd_epochs_now(job->t, &job->footer.tenant, &now, NULL) == KVT_OK &&
	       now.all == job->stamp.all && now.tenant == job->stamp.tenant;
}

static void stored(struct kvtierd_job *job)
{
	struct kvtierd *t = job->t;
	struct kvt_tier_request *r = job->request;
	struct kvt_tier_known known;

	if (stamp_holds(job)) {
		known = redis_footer_known(&job->footer);
		kvt_presence_there(t->presence, &r->keys[0], &known, kvt_now(t->s));
	}
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
	if (x->sent_ns != 0 && (x->status != KVT_OK || status == KVT_EIO))
		kvtierd_doubt(t, &job->request->keys[0], &job->footer.tenant);
	kvtierd_job_done(job, status == KVT_MISS ? KVT_BUSY : status);
}

static void stamp(struct kvtierd_job *job);

static void epochs_known(struct kvtierd_waiter *w, enum kvt_status status)
{
	struct kvtierd_job *job =
		(struct kvtierd_job *)((char *)w - offsetof(struct kvtierd_job, waiter));

	if (status == KVT_OK)
		stamp(job);
	else
		kvtierd_job_done(job, status == KVT_MISS ? KVT_BUSY : status);
}

/* Epochs are known, or waited for; then the PUT goes. */
static void stamp(struct kvtierd_job *job)
{
	struct kvtierd *t = job->t;
	struct kvt_tier_request *r = job->request;
	struct redis_footer *f = &job->footer;
	char name[KVTIERD_NAME_ROOM];
	enum kvt_status status = kvtierd_epochs_now(t, &f->tenant, &job->stamp, &job->waiter);

	if (status == KVT_BUSY)
		return;
	if (status == KVT_OK && kvtierd_epochs_late(t, job))
		status = KVT_MISS; /* the epochs are of after an erase, the chunk is not */
	if (status == KVT_OK &&
		getrandom(&f->writer, sizeof(f->writer), 0) != (ssize_t)sizeof(f->writer))
		status = KVT_EIO;
	if (status != KVT_OK) {
		kvtierd_job_done(job, status == KVT_MISS ? KVT_BUSY : status);
		return;
	}
	f->epoch = job->stamp.all;
	f->tenant_epoch = job->stamp.tenant;
	f->written_wall_ns = kvt_wall(t->s);
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

	job->waiter.fn = epochs_known;
	job->waiter.deadline_ns = job->deadline_ns;
	if (request_is_good(job->request))
		status = job->request->bytes <= UINT32_MAX ? prepare(job) : KVT_FULL;
	if (status == KVT_OK)
		stamp(job);
	else
		kvtierd_job_done(job, status);
}
