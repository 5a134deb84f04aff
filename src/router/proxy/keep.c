/*
 * keep.c - saves the loops' shared data for the next process: owners of responses, use of the
 * limits of keys, tenants and models, and usage, which its own room writes.
 *
 * kvway saves, by name, the use of a limit today and the time until its minute's budget is full
 * again, so that a restart does not change what a client may do. Running requests do not outlive
 * the process, so that their count begins at 0.
 */
#include "proxy/proxy.h"

#include <string.h>

#include "base/clock.h"
#include "proxy/owners.h"
#include "proxy/shared.h"
#include "rates/rates.h"
#include "usage/ledger.h"

struct owner_record {
	uint64_t id; /* hash of the response's id */
	uint32_t worker;
	uint32_t unused;
	uint64_t tenant; /* records of former versions end before this member, and have no tenant */
};

#define OWNER_BYTES_BEFORE offsetof(struct owner_record, tenant)

/* The use of one rate subject. The subject's name follows the record. */
struct rate_record {
	/* time until the buckets of requests and tokens are full again */
	int64_t requests_ns, tokens_ns;
	int64_t day_used;               /* tokens */
	uint64_t day;                   /* day since 1970 */
	uint32_t learned;               /* tokens of an answer */
	uint32_t kind;
};

_Static_assert(sizeof(struct owner_record) == 24 && sizeof(struct rate_record) == 40,
	"records have no gaps");

/* room for the records of one chain of the table: far more than a chain needs */
#define CHAIN_BYTES 65536
#define MOST_NAME   1024

static enum kvw_err keep_owners(struct kvw_owners *owners, const struct kvw_keep_out *out)
{
	struct kvw_owner some[64];
	size_t at = 0, count;

	while ((count = kvw_owners_copy(owners, &at, some, sizeof(some) / sizeof(some[0]))) > 0)
		for (size_t i = 0; i < count; i++) {
			const struct owner_record record = {
				some[i].id, some[i].worker, 0, some[i].tenant};
			enum kvw_err err =
				out->put(out->arg, KVW_KEPT_OWNER, &record, sizeof(record));

			if (err != KVW_OK)
				return err;
		}
	return KVW_OK;
}

/* The records of one chain, each preceded by its length. */
struct chain {
	int64_t now_ns;
	uint64_t today;
	size_t len;
	uint8_t bytes[CHAIN_BYTES];
};

/* Called with the table's lock held. */
static void copy_subject(void *arg, struct kvw_rate_subject *subject)
{
	struct chain *chain = arg;
	const struct rate_record record = {
		.requests_ns = kvw_bucket_debt_ns(&subject->requests, chain->now_ns),
		.tokens_ns = kvw_bucket_debt_ns(&subject->tokens, chain->now_ns),
		.day_used = kvw_day_used(&subject->day, chain->today),
		.day = chain->today,
		.learned = atomic_load_explicit(&subject->learned, memory_order_relaxed),
		.kind = subject->kind,
	};
	uint32_t len = (uint32_t)(sizeof(record) + subject->name_len);

	if ((record.requests_ns == 0 && record.tokens_ns == 0 && record.day_used == 0 &&
		    record.learned == 0) ||
		subject->name_len > MOST_NAME ||
		sizeof(chain->bytes) - chain->len < sizeof(len) + len)
		return;
	memcpy(chain->bytes + chain->len, &len, sizeof(len));
	memcpy(chain->bytes + chain->len + sizeof(len), &record, sizeof(record));
	memcpy(chain->bytes + chain->len + sizeof(len) + sizeof(record), subject->name,
		subject->name_len);
	chain->len += sizeof(len) + len;
}

static enum kvw_err keep_rates(struct kvw_rate_table *rates, const struct kvw_keep_out *out)
{
	struct chain chain;
	size_t cursor = 0;
	bool more = true;

	chain.now_ns = out->now_ns;
	chain.today = kvw_rate_day(kvw_clock_wall_ns());
	while (more) {
		chain.len = 0;
		more = kvw_rate_table_some(rates, &cursor, copy_subject, &chain);
		for (size_t at = 0; at < chain.len;) {
			enum kvw_err err;
			uint32_t len;

			memcpy(&len, chain.bytes + at, sizeof(len));
			at += sizeof(len);
			err = out->put(out->arg, KVW_KEPT_RATE, chain.bytes + at, len);
			if (err != KVW_OK)
				return err;
			at += len;
		}
	}
	return KVW_OK;
}

enum kvw_err kvw_proxy_keep(struct kvw_proxy *proxy, const struct kvw_keep_out *out)
{
	struct kvw_shared *shared = kvw_proxy_shared(proxy);
	enum kvw_err err = keep_owners(shared->owners, out);

	if (err == KVW_OK)
		err = keep_rates(shared->rates, out);
	return err == KVW_OK ? kvw_ledger_keep(shared->ledger, out, out->heir) : err;
}

static void recall_owner(
	struct kvw_owners *owners, const struct kvw_keep_in *in, const uint8_t *bytes, size_t len)
{
	struct owner_record record = {0};

	if (len != sizeof(record) && len != OWNER_BYTES_BEFORE)
		return;
	memcpy(&record, bytes, len);
	if (record.worker < KVW_MAX_WORKERS && in->workers[record.worker] < KVW_MAX_WORKERS)
		kvw_owners_recall(owners,
			&(struct kvw_owner){record.id, record.tenant, in->workers[record.worker]});
}

/* Returns what is left of a debt after the time that has passed; a bucket owes at most an hour
 * after a restart. */
static int64_t debt_now(int64_t debt_ns, int64_t passed_ns)
{
	const int64_t most_ns = 3600 * KVW_NS_PER_S;

	if (debt_ns <= passed_ns)
		return 0;
	return debt_ns - passed_ns < most_ns ? debt_ns - passed_ns : most_ns;
}

static void recall_rate(
	struct kvw_shared *shared, const struct kvw_keep_in *in, const uint8_t *bytes, size_t len)
{
	uint64_t today = kvw_rate_day(kvw_clock_wall_ns());
	struct kvw_rate_subject *subject;
	struct rate_record record;

	if (len <= sizeof(record) || len > sizeof(record) + MOST_NAME)
		return;
	memcpy(&record, bytes, sizeof(record));
	if (record.kind >= KVW_RATE_KINDS || record.requests_ns < 0 || record.tokens_ns < 0 ||
		record.day_used < 0)
		return;
	subject = kvw_rate_table_hold(shared->rates, (enum kvw_rate_kind)record.kind,
		(struct kvw_slice){(const char *)bytes + sizeof(record), len - sizeof(record)},
		in->now_ns, today);
	if (subject == NULL)
		return;
	kvw_bucket_owe(&subject->requests, debt_now(record.requests_ns, in->passed_ns), in->now_ns);
	kvw_bucket_owe(&subject->tokens, debt_now(record.tokens_ns, in->passed_ns), in->now_ns);
	/* Where replicas share their counts, Redis has the day's count, which includes this
	 * replica's charges. */
	if (record.day == today && shared->config->rate_sharing_redis[0] == '\0')
		kvw_day_correct(&subject->day,
			record.day_used < INT64_MAX / 4 ? record.day_used : INT64_MAX / 4, today);
	atomic_store_explicit(&subject->learned, record.learned, memory_order_relaxed);
	kvw_rate_subject_put(subject);
}

void kvw_proxy_recall(struct kvw_proxy *proxy, const struct kvw_keep_in *in)
{
	struct kvw_shared *shared = kvw_proxy_shared(proxy);
	enum kvw_keep_kind kind;
	const uint8_t *bytes;
	size_t len;

	while (in->next(in->arg, &kind, &bytes, &len))
		if (kind == KVW_KEPT_OWNER)
			recall_owner(shared->owners, in, bytes, len);
		else if (kind == KVW_KEPT_RATE)
			recall_rate(shared, in, bytes, len);
		else if (kind == KVW_KEPT_USAGE)
			kvw_ledger_recall(shared->ledger, bytes, len, kvw_clock_wall_ns() / KVW_NS_PER_S);
}
