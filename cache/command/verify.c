/*
 * verify.c - `kvtier verify`: reads every chunk of a store and reports those whose bytes changed.
 *
 * The verb repairs nothing: a cache that opens the store drops a damaged chunk when it meets one.
 * With a live owner chunks come and go; a chunk that went is no damage.
 */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "command/command.h"
#include "command/format.h"
#include "command/output.h"
#include "tiers/nvme/nvme_inspect.h"
#include "command/store.h"

/* time for a live owner to record that a chunk is gone */
#define PATIENCE_NS   (UINT64_C(3) * 1000000000)
#define PROGRESS_S    2.0
#define DAMAGED_SHOWN 20

/* One run over a store. */
struct pass {
	const char *folder;
	uint64_t total, total_bytes; /* number and bytes of chunks in the log */
	uint64_t done, bytes;        /* read so far */
	uint64_t right, sealed, gone, damaged, failed;
	uint64_t damaged_pieces; /* number of damaged pieces, in chunks whose header is right */
	uint64_t log_damaged;
	const char *keys; /* file of master keys; NULL: encrypted payloads are not checked */
	uint64_t rate;    /* most bytes read per second; 0: not limited */
	double begun, told;
	bool quiet;
};

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void report_progress(struct pass *p)
{
	char rate[KVT_FORMAT_BYTES], left[KVT_FORMAT_BYTES];
	double now = now_s(), took = now - p->begun;
	double per_second = took > 0 ? (double)p->bytes / took : 0;

	if (p->quiet || now - p->told < PROGRESS_S || p->done == p->total)
		return;
	p->told = now;
	fprintf(stderr, "%s: %" PRIu64 " of %" PRIu64 " chunks (%.0f %%), %s, %s left%s\n",
		p->folder, p->done, p->total, 100.0 * (double)p->bytes / (double)p->total_bytes,
		kvt_format_rate(rate, per_second),
		kvt_format_age(left,
			per_second > 0 ? (double)(p->total_bytes - p->bytes) / per_second : 0),
		p->damaged > 0 ? ", DAMAGE found" : "");
}

/* Waits until the bytes read so far are no more than the rate allows. */
static void keep_rate(const struct pass *p)
{
	double due, now = now_s();
	struct timespec t;

	if (p->rate == 0)
		return;
	due = p->begun + (double)p->bytes / (double)p->rate;
	if (due <= now)
		return;
	t.tv_sec = (time_t)(due - now);
	t.tv_nsec = (long)((due - now - (double)t.tv_sec) * 1e9);
	while (nanosleep(&t, &t) != 0 && errno == EINTR)
		;
}

static void report_damage(struct pass *p, const struct kvt_inspect_chunk *c, const char *what)
{
	const uint8_t *key = c->key.bytes;

	if (p->damaged + p->failed <= DAMAGED_SHOWN)
		fprintf(stderr, "%s: chunk %02x%02x%02x%02x, %" PRIu64 " bytes: %s\n", p->folder,
			key[0], key[1], key[2], key[3], c->bytes, what);
	else if (p->damaged + p->failed == DAMAGED_SHOWN + 1)
		fprintf(stderr, "%s: further ones are only counted\n", p->folder);
}

/* Describes the damaged part of a chunk. */
static const char *where(char out[96], const struct kvt_inspect_damage *d)
{
	if (d->header)
		return "not what was stored: its header";
	if (d->pieces <= 1 || d->bad == 0)
		return "not what was stored";
	(void)snprintf(out, 96, "not what was stored: %" PRIu32 " of %" PRIu32 " pieces, first piece %" PRIu32, d->bad,
		d->pieces, d->first + 1);
	return out;
}

static void take_result(struct pass *p, const struct kvt_inspect_chunk *c, enum kvt_status status,
	const struct kvt_inspect_damage *damage)
{
	char words[96];

	switch (status) {
	case KVT_OK:
		p->right++;
		break;
	case KVT_MISS:
		p->gone++;
		break;
	case KVT_ENOTSUP:
		p->sealed++;
		break;
	case KVT_ECORRUPT:
		p->damaged++;
		p->damaged_pieces += damage->bad;
		report_damage(p, c, where(words, damage));
		break;
	default:
		p->failed++;
		report_damage(p, c, kvt_status_text(status));
		break;
	}
}

static void run(struct kvt_inspect *x, struct pass *p, uint64_t patience_ns)
{
	struct kvt_inspect_store store;

	kvt_inspect_store(x, &store);
	p->total = kvt_inspect_count(x);
	p->total_bytes = store.payload_bytes;
	p->log_damaged = store.log_damaged;
	p->begun = p->told = now_s();
	for (size_t i = 0; i < p->total; i++) {
		struct kvt_inspect_damage damage = {0};
		struct kvt_inspect_chunk chunk;

		kvt_inspect_chunk(x, i, &chunk);
		take_result(p, &chunk, kvt_inspect_verify(x, i, patience_ns, &damage), &damage);
		p->done++;
		p->bytes += chunk.bytes;
		report_progress(p);
		keep_rate(p);
	}
}

/* --- the result ------------------------------------------------------------------------------- */

static void print_result(const struct pass *p)
{
	char size[KVT_FORMAT_BYTES], rate[KVT_FORMAT_BYTES];
	double took = now_s() - p->begun;

	printf("%s: %s\n  %" PRIu64 " chunks, %s, %s\n", p->folder,
		p->damaged + p->failed == 0 ? "no damage" : "DAMAGED", p->total,
		kvt_format_size(size, (double)p->bytes),
		kvt_format_rate(rate, took > 0 ? (double)p->bytes / took : 0));
	printf("  %" PRIu64 " right, %" PRIu64 " damaged, %" PRIu64 " unreadable\n", p->right,
		p->damaged, p->failed);
	if (p->damaged_pieces > 0)
		printf("  %" PRIu64 " pieces of the damaged ones are wrong\n", p->damaged_pieces);
	if (p->sealed > 0)
		printf("  %" PRIu64 " sealed: header right, payload not looked at: %s\n", p->sealed,
			p->keys == NULL ? "--keys opens it" : "its key is not there");
	if (p->gone > 0)
		printf("  %" PRIu64 " went while it ran\n", p->gone);
	if (p->log_damaged > 0)
		printf("  %" PRIu64 " records of the log are damaged and were skipped\n",
			p->log_damaged);
}

static json_t *result_json(const struct pass *p)
{
	return json_pack("{s:o, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "folder", kvt_json_any_text(p->folder),
		"damage", (int)(p->damaged + p->failed > 0), "chunks", (json_int_t)p->total,
		"bytes", (json_int_t)p->bytes, "right", (json_int_t)p->right, "damaged",
		(json_int_t)p->damaged, "damaged_pieces", (json_int_t)p->damaged_pieces,
		"unreadable", (json_int_t)p->failed, "sealed",
		(json_int_t)p->sealed, "gone", (json_int_t)p->gone, "log_damaged",
		(json_int_t)p->log_damaged);
}

/* --- the verb --------------------------------------------------------------------------------- */

static int verify(const struct kvt_surroundings *s, struct pass *p, json_t *list)
{
	char why[KVT_REASON_BYTES] = "";
	struct kvt_inspect *x = NULL;
	struct kvt_owner owner;
	int result;
	enum kvt_status status = kvt_inspect_open(p->folder, NULL, s, why, &x);

	if (status == KVT_OK && p->keys != NULL) {
		status = kvt_inspect_keys(x, p->keys, why);
		if (status != KVT_OK)
			kvt_inspect_close(x);
	}
	if (status != KVT_OK) {
		fprintf(stderr, "kvtier verify: %s: %s%s%s\n", p->folder, kvt_status_text(status),
			why[0] != '\0' ? ": " : "", why);
		return status == KVT_ECORRUPT ? KVT_EXIT_DAMAGE : KVT_EXIT_FAILED;
	}
	kvt_store_owner(p->folder, &owner);
	run(x, p, owner.alive ? PATIENCE_NS : 0);
	kvt_inspect_close(x);
	if (list == NULL)
		print_result(p);
	result = list != NULL ? kvt_json_add_take("verify", list, result_json(p)) : KVT_EXIT_OK;
	return p->damaged + p->failed > 0 ? KVT_EXIT_DAMAGE : result;
}

/* Returns the worse exit status. Damage is worse than a store that could not be opened, because
 * damage is what the caller asked about. */
static int worse(int a, int b)
{
	if (a == KVT_EXIT_DAMAGE || b == KVT_EXIT_DAMAGE)
		return KVT_EXIT_DAMAGE;
	return a > b ? a : b;
}

int kvt_command_verify(int argc, char **argv)
{
	bool json = false, quiet = false;
	const char *rate_text = NULL, *keys = NULL;
	const struct kvt_option options[] = {{"--json", NULL, &json}, {"--quiet", NULL, &quiet},
		{"--rate", &rate_text, NULL}, {"--keys", &keys, NULL}, {0}};
	struct kvt_surroundings surroundings;
	struct kvt_stores stores;
	const char *path[1];
	uint64_t rate = 0;
	int result = KVT_EXIT_OK;
	json_t *list;

	if (kvt_options_take(argc, argv, options, path, 1) != 1)
		return argc == 1 ? kvt_command_wrong("verify", "expected a store's folder")
				 : KVT_EXIT_USAGE;
	if (rate_text != NULL && (!kvt_parse_size(rate_text, &rate) || rate == 0))
		return kvt_command_wrong("verify",
			"--rate: found `%s`, expected bytes a second such as 200MiB", rate_text);
	if (!kvt_stores_find("verify", path[0], &stores))
		return KVT_EXIT_FAILED;
	list = json ? json_array() : NULL;
	kvt_surroundings_init(&surroundings, NULL);
	for (size_t i = 0; i < stores.count; i++) {
		struct pass p = {
			.folder = stores.folders[i], .keys = keys, .rate = rate, .quiet = quiet};

		result = worse(result, verify(&surroundings, &p, list));
	}
	kvt_stores_finish(&stores);
	return list != NULL ? kvt_json_print_take("verify", list, result) : result;
}
