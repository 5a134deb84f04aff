/*
 * erase_print.c - prints the results of `kvtier erase`, as text or as JSON.
 */
#include <inttypes.h>
#include <jansson.h>

#include "command/erase.h"
#include "command/format.h"
#include "command/output.h"

static const char *const tiers[KVT_TIER_COUNT] = {
	[KVT_TIER_L1] = "l1", [KVT_TIER_NVME] = "nvme", [KVT_TIER_L2] = "l2"};

static const char *const counted[] = {[KVT_COUNTED_NO_TIER] = "none",
	[KVT_COUNTED] = "counted",
	[KVT_COUNTED_UNKNOWN] = "unknown"};

static const char *outcome(const struct kvt_erase_result *r)
{
	if (!kvt_erase_reached(r) && (r->status == KVT_OK || r->status == KVT_MISS))
		return "not complete: a tier could not be reached";
	if (r->status == KVT_MISS)
		return "unreadable now, but not yet safe from a crash: run it again";
	if (r->status != KVT_OK)
		return "not complete: run it again";
	return r->dry_run ? "nothing erased (--dry-run)" : "erased, also after a crash";
}

void kvt_erase_print(const struct kvt_erase_result *r, FILE *out)
{
	char size[KVT_FORMAT_BYTES];

	fprintf(out, "%s\n", r->folder != NULL ? r->folder : "(no store on this machine)");
	if (r->owner.alive)
		fprintf(out, "  owner    pid %" PRId64 ", running\n", r->owner.pid);
	for (size_t i = 0; i < KVT_TIER_COUNT; i++) {
		if (r->why[i][0] != '\0')
			fprintf(out, "  %-8s NOT REACHED: %s\n", tiers[i], r->why[i]);
		else if (r->erased.tiers[i].counted == KVT_COUNTED)
			fprintf(out, "  %-8s %8" PRIu64 " chunks %10s\n", tiers[i],
				r->erased.tiers[i].chunks,
				kvt_format_size(size, (double)r->erased.tiers[i].bytes));
		else if (r->erased.tiers[i].counted == KVT_COUNTED_UNKNOWN)
			fprintf(out, "  %-8s not counted: a shared tier cannot say how many\n",
				tiers[i]);
	}
	fprintf(out, "  %s\n", outcome(r));
}

static json_t *tier_json(const struct kvt_erase_result *r, size_t i)
{
	const uint32_t kind = r->erased.tiers[i].counted;

	return json_pack("{s:s, s:s, s:I, s:I, s:o}", "tier", tiers[i], "counted",
		counted[kind <= KVT_COUNTED_UNKNOWN ? kind : KVT_COUNTED_NO_TIER], "chunks",
		(json_int_t)r->erased.tiers[i].chunks, "bytes",
		(json_int_t)r->erased.tiers[i].bytes, "not_reached", kvt_json_any_text(r->why[i]));
}

struct json_t *kvt_erase_json(const struct kvt_erase_result *r)
{
	json_t *list = json_array();

	for (size_t i = 0; i < KVT_TIER_COUNT; i++)
		json_array_append_new(list, tier_json(r, i));
	return json_pack("{s:o, s:b, s:I, s:b, s:b, s:s, s:o}", "folder",
		kvt_json_any_text(r->folder != NULL ? r->folder : ""), "owned", (int)r->owner.alive, "owner_pid",
		(json_int_t)r->owner.pid, "dry_run", (int)r->dry_run, "done",
		(int)kvt_erase_done(r), "status", kvt_status_text(r->status), "tiers", list);
}
