/*
 * stat_print.c - prints the results of `kvtier stat`, as text or as JSON.
 *
 * The text shows a tenant by the first four bytes of its hash; the JSON form has whole hashes, for
 * callers that erase by them.
 */
#include <inttypes.h>
#include <jansson.h>
#include <string.h>

#include "command/format.h"
#include "command/output.h"
#include "command/stat.h"

static const char *hex(char *out, const uint8_t *bytes, size_t count)
{
	for (size_t i = 0; i < count; i++)
		sprintf(out + 2 * i, "%02x", bytes[i]);
	return out;
}

static void print_owner(const struct kvt_stat *s, int64_t wall_s, FILE *out)
{
	char age[KVT_FORMAT_BYTES];

	if (s->owner.alive && s->owner.pid != 0)
		fprintf(out, "  owner    pid %" PRId64 ", running\n", s->owner.pid);
	else
		fprintf(out, "  owner    %s\n", s->owner.alive ? "running, pid unknown" : "none");
	if (s->changed_wall_s != 0)
		fprintf(out, "  changed  %s ago\n",
			kvt_format_age(age,
				(double)(wall_s > s->changed_wall_s ? wall_s - s->changed_wall_s
								    : 0)));
}

static void print_store(const struct kvt_stat *s, FILE *out)
{
	const struct kvt_inspect_store *st = &s->store;
	char a[KVT_FORMAT_BYTES], b[KVT_FORMAT_BYTES], id[33], fingerprint[65];

	fprintf(out, "  format   %u.%u, store %.8s, fingerprint %.16s, rank %u\n", st->major,
		st->minor, hex(id, st->store_id, 16), hex(fingerprint, st->fingerprint.bytes, 32),
		st->rank);
	fprintf(out, "  files    %" PRIu64 " of %s = %s\n", st->data_files,
		kvt_format_size(a, (double)st->file_bytes),
		kvt_format_size(b, (double)st->data_bytes));
	fprintf(out, "  log      %s, %" PRIu64 " records",
		kvt_format_size(a, (double)st->log_bytes), st->log_records);
	if (st->log_damaged > 0)
		fprintf(out, ", %" PRIu64 " damaged (skipped)", st->log_damaged);
	fputc('\n', out);
}

static void print_chunks(const struct kvt_stat *s, FILE *out)
{
	const struct kvt_inspect_store *st = &s->store;
	char a[KVT_FORMAT_BYTES], b[KVT_FORMAT_BYTES];

	fprintf(out, "  chunks   %" PRIu64 ": %s, %s on disk", st->chunks,
		kvt_format_size(a, (double)st->payload_bytes),
		kvt_format_size(b, (double)st->disk_bytes));
	if (st->data_bytes > 0)
		fprintf(out, ", %.1f %% of the files",
			100.0 * (double)st->disk_bytes / (double)st->data_bytes);
	fputc('\n', out);
	if (st->chunks == 0)
		return;
	fprintf(out,
		"           %s to %s each, %s tokens, %" PRIu64 " begin a prompt, %" PRIu64
		" lie in pieces\n",
		kvt_format_size(a, (double)s->smallest), kvt_format_size(b, (double)s->largest),
		kvt_format_count((char[KVT_FORMAT_BYTES]){0}, (double)s->tokens), s->roots,
		s->in_pieces);
	if (s->summed_by_pieces > 0)
		fprintf(out, "           %" PRIu64 " have a checksum for each %s (format 1.2)\n",
			s->summed_by_pieces, kvt_format_size(a, (double)st->piece_bytes));
	if (s->fragment_chunks > 0)
		fprintf(out, "           %" PRIu64 " of them are of %" PRIu64 " fragments: %s tokens, %s on disk\n", s->fragment_chunks,
			s->fragments, kvt_format_count(a, (double)s->fragment_tokens), kvt_format_size(b, (double)s->fragment_bytes));
	if (s->mortal > 0)
		fprintf(out,
			"  time     %" PRIu64 " chunks have an end, %" PRIu64 " have passed it\n",
			s->mortal, s->expired);
	if (s->newest_use_s >= 0)
		fprintf(out, "           last used %s to %s ago\n",
			kvt_format_age(a, s->newest_use_s), kvt_format_age(b, s->oldest_use_s));
}

static const char *const reasons[KVT_FRAGMENT_REFUSALS] = {
	[KVT_FRAGMENT_BLENDED] = "blended",
	[KVT_FRAGMENT_HEADER] = "header",
	[KVT_FRAGMENT_MODEL] = "model",
	[KVT_FRAGMENT_TOKENS] = "tokens",
	[KVT_FRAGMENT_FULL] = "full",
};

/* Prints the owner's reuse of fragments; prints nothing if there was none. */
static void print_reuse(const struct kvt_stat *s, FILE *out)
{
	const struct kvt_fragments_stats *r = &s->reuse;
	char a[KVT_FORMAT_BYTES], b[KVT_FORMAT_BYTES];
	const char *before = ", refused ";

	if (!s->has_reuse || (s->fragment_chunks == 0 && r->hit_tokens + r->missed_tokens == 0))
		return;
	fprintf(out, "  reuse    of fragments, since its owner began: %s tokens put into prompts, %s missed\n",
		kvt_format_count(a, (double)r->hit_tokens), kvt_format_count(b, (double)r->missed_tokens));
	fprintf(out, "           %s read, %s of keys moved", kvt_format_size(a, (double)r->loaded_bytes),
		kvt_format_size(b, (double)r->moved_bytes));
	for (int i = 0; i < KVT_FRAGMENT_REFUSALS; i++)
		if (r->refused[i] > 0) {
			fprintf(out, "%s%s: %" PRIu64, before, reasons[i], r->refused[i]);
			before = ", ";
		}
	fputc('\n', out);
}

/* Makes a JSON object; NULL: no owner reported its reuse. */
static json_t *reuse_json(const struct kvt_stat *s)
{
	const struct kvt_fragments_stats *r = &s->reuse;
	json_t *refused;

	if (!s->has_reuse)
		return NULL;
	refused = json_object();
	for (int i = 0; i < KVT_FRAGMENT_REFUSALS; i++)
		json_object_set_new(refused, reasons[i], json_integer((json_int_t)r->refused[i]));
	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:o}", "loads", (json_int_t)r->loads, "hit_tokens",
		(json_int_t)r->hit_tokens, "missed_tokens", (json_int_t)r->missed_tokens, "loaded_bytes",
		(json_int_t)r->loaded_bytes, "moved_bytes", (json_int_t)r->moved_bytes, "refused", refused);
}

static void print_tenants(const struct kvt_stat *s, size_t most, FILE *out)
{
	static const struct kvt_tenant nobody;
	char prefix[33], a[KVT_FORMAT_BYTES];

	for (size_t i = 0; i < s->tenant_count && i < most; i++) {
		const struct kvt_stat_tenant *t = &s->tenants[i];
		bool none = memcmp(&t->tenant, &nobody, sizeof(nobody)) == 0;

		fprintf(out, "  %s %-10s %8" PRIu64 " chunks %10s on disk",
			i == 0 ? "tenants " : "        ",
			none ? "(no salt)" : hex(prefix, t->tenant.bytes, 4), t->chunks,
			kvt_format_size(a, (double)t->disk_bytes));
		if (s->has_l1)
			fprintf(out, ", %8" PRIu64 " chunks %10s in memory", t->l1_chunks,
				kvt_format_size(a, (double)t->l1_bytes));
		if (s->has_l2)
			fprintf(out, ", %8" PRIu64 " chunks %10s shared", t->l2_chunks,
				kvt_format_size(a, (double)t->l2_bytes));
		fputc('\n', out);
	}
	if (s->l1_others.chunks > 0)
		fprintf(out, "           and %" PRIu64 " chunks, %s in memory, of tenants that have less there\n",
			s->l1_others.chunks, kvt_format_size(a, (double)s->l1_others.bytes));
	if (s->tenant_count > most)
		fprintf(out, "           and %zu more; --all lists them\n", s->tenant_count - most);
}

void kvt_stat_print(const struct kvt_stat *s, size_t most, int64_t wall_s, FILE *out)
{
	fprintf(out, "%s\n", s->folder);
	print_owner(s, wall_s, out);
	print_store(s, out);
	print_chunks(s, out);
	print_reuse(s, out);
	print_tenants(s, most, out);
}

static json_t *tenants_json(const struct kvt_stat *s)
{
	json_t *tenants = json_array();
	char name[33];

	for (size_t i = 0; i < s->tenant_count; i++) {
		const struct kvt_stat_tenant *t = &s->tenants[i];

		json_t *one = json_pack("{s:s, s:I, s:I, s:I}", "tenant",
			hex(name, t->tenant.bytes, sizeof(t->tenant.bytes)), "chunks",
			(json_int_t)t->chunks, "payload_bytes", (json_int_t)t->bytes, "disk_bytes",
			(json_int_t)t->disk_bytes);

		if (s->has_l1) {
			json_object_set_new(one, "l1_chunks", json_integer((json_int_t)t->l1_chunks));
			json_object_set_new(one, "l1_bytes", json_integer((json_int_t)t->l1_bytes));
		}
		if (s->has_l2) {
			json_object_set_new(one, "l2_chunks", json_integer((json_int_t)t->l2_chunks));
			json_object_set_new(one, "l2_bytes", json_integer((json_int_t)t->l2_bytes));
		}
		json_array_append_new(tenants, one);
	}
	return tenants;
}

struct json_t *kvt_stat_json(const struct kvt_stat *s)
{
	const struct kvt_inspect_store *st = &s->store;
	char id[33], fingerprint[65];
	json_t *others = NULL; /* stays NULL if no owner reported the contents of its memory */

	if (s->has_l1)
		others = json_pack("{s:I, s:I}", "chunks", (json_int_t)s->l1_others.chunks, "bytes",
			(json_int_t)s->l1_others.bytes);
	return json_pack(
		"{s:o, s:b, s:I, s:[II], s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, "
		"s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:{s:I, s:I, s:I, s:I, s:o*}, s:o, s:o*}",
		"folder", kvt_json_any_text(s->folder), "owned", (int)s->owner.alive, "owner_pid",
		(json_int_t)s->owner.pid, "format", (json_int_t)st->major, (json_int_t)st->minor,
		"store_id", hex(id, st->store_id, 16), "fingerprint",
		hex(fingerprint, st->fingerprint.bytes, 32), "rank", (json_int_t)st->rank,
		"file_bytes", (json_int_t)st->file_bytes, "data_files", (json_int_t)st->data_files,
		"data_bytes", (json_int_t)st->data_bytes, "log_bytes", (json_int_t)st->log_bytes,
		"log_records", (json_int_t)st->log_records, "log_damaged",
		(json_int_t)st->log_damaged, "chunks", (json_int_t)st->chunks, "payload_bytes",
		(json_int_t)st->payload_bytes, "disk_bytes", (json_int_t)st->disk_bytes, "tokens",
		(json_int_t)s->tokens, "smallest_bytes", (json_int_t)s->smallest, "largest_bytes",
		(json_int_t)s->largest, "roots", (json_int_t)s->roots, "in_pieces",
		(json_int_t)s->in_pieces, "summed_by_pieces", (json_int_t)s->summed_by_pieces, "expired", (json_int_t)s->expired, "fragments", "count", (json_int_t)s->fragments, "chunks",
		(json_int_t)s->fragment_chunks, "tokens", (json_int_t)s->fragment_tokens, "disk_bytes",
		(json_int_t)s->fragment_bytes, "reuse", reuse_json(s), "tenants",
		tenants_json(s), "l1_others", others);
}
